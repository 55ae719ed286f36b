from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest

from adjudge.engine.errors import AdjudgeError
from adjudge.training.house.recipe import HouseRecipe, TextFile, read_house_recipe
from adjudge.training.house.texts import Corpus, Story, joined, stories_of, story_of, written
from tests.jsonl import write_lines
from tests.training.house.stories import own_stories

TEXT = "The bus was late. Ana waited in the rain. At last it came."


def texts(tmp_path: Path, *rows: dict[str, object]) -> TextFile:
    path = tmp_path / "texts.jsonl"
    write_lines(path, *rows)
    return TextFile(str(path))


def recipe(tmp_path: Path, source: str) -> HouseRecipe:
    path = tmp_path / "recipe.toml"
    path.write_text(f'output = "out"\n[[sources]]\n{source}\n')
    return read_house_recipe(path)


def test_an_ending_alone_cannot_be_asked_of_excerpts(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    source = '[[sources]]\npath = "x"\nlicence = "MIT"\nattribution = "me"\n'
    path.write_text(f'output = "out"\naspects = "ending"\n{source}')
    with pytest.raises(AdjudgeError, match='aspects is "ending" alone, .*: name others beside it'):
        read_house_recipe(path)


def test_another_text_is_of_another_prompt_where_there_is_one() -> None:
    parts = ("One came.", "Two went.", "All sat.")
    of_one = [Story(number, "p", parts, (" ",) * 3) for number in range(60)]
    corpus = Corpus([*of_one, Story(60, "q", parts, (" ",) * 3)])
    excerpt = Story(7, parts[0], parts[1:], (" ",) * 2, whole_prompt="p")
    assert {corpus.text(Random(seed), excerpt).prompt for seed in range(50)} == {"q"}
    assert {Corpus(of_one[:2]).text(Random(seed), of_one[0]).number for seed in range(50)} == {1}


def test_a_text_comes_in_sentences_with_the_prompt_it_answers(tmp_path: Path) -> None:
    [story] = stories_of([texts(tmp_path, {"prompt": "A bus.", "text": TEXT})]).texts
    assert story.sentences == ("The bus was late.", "Ana waited in the rain.", "At last it came.")
    assert story.prompt == "A bus."


def test_texts_too_short_to_be_made_worse_are_left_out_and_counted(tmp_path: Path) -> None:
    found = stories_of([texts(tmp_path, {"text": TEXT}, {"text": "One sentence only."}, {"text": ""})])
    assert len(found.texts) == 1 and found.short == {str(tmp_path / "texts.jsonl"): 2}


def test_a_column_of_several_texts_by_name_gives_all_of_them(tmp_path: Path) -> None:
    found = stories_of([texts(tmp_path, {"prompt": "p", "text": {"one": TEXT, "other": TEXT + " So she got home."}})])
    assert [len(story.sentences) for story in found.texts] == [3, 4]


def test_a_folder_gives_its_text_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.txt").write_text(TEXT)
    (tmp_path / "two.md").write_text("## Chapter one\n\n" + TEXT + "\n\n## The response\n\nSo it went.")
    (tmp_path / "three.pdf").write_text(TEXT)
    found = stories_of([TextFile(str(tmp_path))])
    assert [story.sentences[0] for story in found.texts] == ["The bus was late."] * 2
    assert [len(story.sentences) for story in found.texts] == [3, 4]


def test_what_a_model_says_to_whoever_asked_is_no_part_of_its_story(tmp_path: Path) -> None:
    row = {"text": f"Sure, here is a story!\n\nTitle: The Bus\n\n{TEXT}\n\n### Human: Thanks. And now? Go on."}
    assert " ".join(stories_of([texts(tmp_path, row)]).texts[0].sentences) == TEXT


def test_hostile_texts_take_linear_time() -> None:
    assert story_of("\n" * 500_000 + TEXT + "\n" * 500_000)[0][0] == "The bus was late."  # a quadratic one: hours
    assert story_of(f"{TEXT}\n \n  \n  User: more")[0][-1] == "At last it came."


def test_texts_that_are_no_stories_stand_apart(tmp_path: Path) -> None:
    source = texts(tmp_path, {"text": f" {TEXT}\n"}, {"text": "Rain."}, {"text": " "})
    with pytest.raises(AdjudgeError, match="no text of at least 3 sentences"):
        stories_of([msgspec.structs.replace(source, stories=False)])
    found = stories_of([source, msgspec.structs.replace(source, stories=False)])
    assert found.others == (TEXT, "Rain.") and len(found.texts) == 1 and found.short == {source.path: 2}


def test_a_single_file_of_text_is_one_text_and_what_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "bus.TXT"
    for coding in ("utf-8-sig", "utf-16"):
        own.write_text(TEXT, encoding=coding)
        for path in (own, tmp_path):
            assert [" ".join(one.sentences) for one in stories_of([TextFile(str(path))]).texts] == [TEXT]
    own.write_text(f"{TEXT} Café.", encoding="latin-1")
    with pytest.raises(AdjudgeError, match=r"bus.TXT is not UTF-8: save it as UTF-8, or take it away$"):
        stories_of([TextFile(str(tmp_path))])


@pytest.mark.parametrize("absent", ["licence", "attribution"])
def test_a_source_without_a_licence_is_refused_by_name(tmp_path: Path, absent: str) -> None:
    given = {"licence": "MIT", "attribution": "Ana"}
    lines = "".join(f'\n{name} = "{value}"' for name, value in given.items() if name != absent)
    (tmp_path / "texts.jsonl").write_text("{}")
    with pytest.raises(AdjudgeError, match=f"texts.jsonl has no {absent}: write {absent} = "):
        recipe(tmp_path, f'path = "texts.jsonl"{lines}')


@pytest.mark.parametrize("said", ["None", "NOASSERTION", " unknown "])
def test_a_licence_that_is_none_is_refused_by_name(tmp_path: Path, said: str) -> None:
    (tmp_path / "texts.jsonl").write_text("{}")
    with pytest.raises(AdjudgeError, match=f'texts.jsonl has the licence "{said}", which is none: write'):
        recipe(tmp_path, f'path = "texts.jsonl"\nlicence = "{said}"\nattribution = "Ana"')


def test_a_source_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="texts.jsonl is not there: mend its path, or name its folder with --data"):
        recipe(tmp_path, 'path = "texts.jsonl"\nlicence = "MIT"\nattribution = "Ana"')


def test_a_source_is_looked_for_beside_the_recipe_then_in_the_folder_of_data(tmp_path: Path) -> None:
    path, data = tmp_path / "recipe.toml", tmp_path / "data"
    (data / "in").mkdir(parents=True)
    (data / "in" / "texts.jsonl").write_text("{}")
    path.write_text('output = "out"\n[[sources]]\npath = "in/texts.jsonl"\nlicence = "MIT"\nattribution = "Ana"')
    assert read_house_recipe(path, data=data).sources[0].path == str(data / "in" / "texts.jsonl")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "texts.jsonl").write_text("{}")
    assert read_house_recipe(path, data=data).sources[0].path == str(tmp_path / "in" / "texts.jsonl")


def test_a_column_that_is_no_text_is_refused_with_its_line(tmp_path: Path) -> None:
    mend = r'set text = "COLUMN" in \[\[sources\]\]$'
    with pytest.raises(AdjudgeError, match=rf'line 1 of texts.jsonl: "text" is no text: {mend}'):
        stories_of([texts(tmp_path, {"text": 5})])
    with pytest.raises(AdjudgeError, match=r'line 1 of texts.jsonl: "text" is empty: fill it, or leave the row out$'):
        stories_of([texts(tmp_path, {"text": None})])
    with pytest.raises(AdjudgeError, match=rf'"text" is missing .*: its columns are "story", "n"; {mend}'):
        stories_of([texts(tmp_path, {"story": TEXT, "n": 5})])


def test_a_prompt_column_that_no_row_has_is_refused_if_it_was_named(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"title": "A bus.", "text": TEXT}, {"title": "A ship.", "text": TEXT, "ask": "x"}]
    source = texts(tmp_path, *rows)
    with pytest.raises(AdjudgeError, match=r'no row of .*texts\.jsonl has "titel": mend prompt = "COLUMN"'):
        stories_of([msgspec.structs.replace(source, prompt="titel")])
    for column, expected in (("title", ["A bus.", "A ship."]), ("ask", ["", "x"]), ("prompt", ["", ""])):
        found = stories_of([msgspec.structs.replace(source, prompt=column)]).texts
        assert [story.prompt for story in found] == expected


SCORED = [{"text": "A bus came.", "score": 3.2}, {"text": "A a a.", "score": 1.1}]


def test_worse_tellings_and_scored_texts_stand_beside_their_text(tmp_path: Path) -> None:
    row = {"prompt": "A bus.", "text": TEXT, "worse": {"bland": "Things happened."}, "scored": SCORED}
    beside = stories_of([texts(tmp_path, row)]).texts[0].beside
    assert (
        beside.worse == {"bland": "Things happened."} and [msgspec.to_builtins(one) for one in beside.scored] == SCORED
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"worse": ["A cat."]},
        {"worse": {"drift": ""}},
        {"scored": {"text": "A cat.", "score": 1}},
        {"scored": SCORED[:1]},
        {"scored": [*SCORED, {"text": " ", "score": 2}]},
        {"scored": [*SCORED, {"text": "A cat.", "score": 9}]},
        {"scored": [*SCORED, {"text": "A cat.", "score": float("nan")}]},
    ],
)
def test_what_does_not_fit_beside_a_text_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(AdjudgeError, match=r'line 1 of texts.jsonl: .* "worse" must be an object .* "scored" a list'):
        stories_of([texts(tmp_path, {"prompt": "A bus.", "text": TEXT, **changed})])


@pytest.mark.parametrize("changed", [{"prompt": " "}, {"text": {"one": TEXT, "b": TEXT}}])
@pytest.mark.parametrize("beside", [{"worse": {"drift": "It rained."}}, {"scored": SCORED}])
def test_what_stands_beside_no_one_text_is_refused(
    tmp_path: Path, changed: dict[str, object], beside: dict[str, object]
) -> None:
    row = {"prompt": "A bus.", "text": TEXT, **beside, **changed}
    with pytest.raises(AdjudgeError, match=r'line 1 of texts.jsonl: "worse" and "scored" want one text and its prompt'):
        stories_of([texts(tmp_path, row)])


def test_sources_without_a_usable_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AdjudgeError, match="no text of at least 3 sentences"):
        stories_of([texts(tmp_path, {"text": "Short."})])


def test_the_projects_own_stories_are_all_of_use() -> None:
    stories = own_stories()
    assert len(stories) == 1904 == len({story.sentences for story in stories})
    assert all(story.prompt for story in stories)


def test_the_signs_for_a_new_line_of_public_files_are_no_part_of_a_story() -> None:
    assert story_of("It rained all day.<br><br>She ran. <br />He sat. <newline> Then it ended.")[0] == (
        "It rained all day.",
        "She ran.",
        "He sat.",
        "Then it ended.",
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("It rained. Silence. She ran. Gone.", ("It rained. Silence.", "She ran. Gone.")),
        ("It rained.\n\nNo.\n\nShe ran.", ("It rained.\n\nNo.", "She ran.")),
        ("Boom! It rained.\nChapter two\n***\nShe ran.", ("Boom! It rained.\nChapter two\n***", "She ran.")),
        ("The Bus\n1. The start\n\nIt rained. She ran.\nIngredients\n- salt", ("It rained.", "She ran.")),
        ("Sure! Here is a story.\nIt rained. She ran", ("It rained.",)),
        ("It rained. Here is a story of hers. She ran.", ("It rained.", "Here is a story of hers.", "She ran.")),
    ],
)
def test_a_fragment_stays_with_the_sentence_before_it_or_the_first_one(text: str, parts: tuple[str, ...]) -> None:
    assert story_of(text)[0] == parts


def test_a_long_sentence_stays_where_it_stands_but_not_at_the_end() -> None:
    long = "It went " + "on " * 70 + "so."
    assert story_of(f"It rained. {long} Then lines\nwithout end\nShe ran. {long}")[0] == (
        "It rained.",
        long,
        "Then lines\nwithout end",
        "She ran.",
    )


def test_no_story_has_a_hole() -> None:
    random, pieces = Random(0), ("Boom!", "It rained.", "She ran", "No", "***", "- salt", "so " * 70 + "on.", "1.")
    kept = 0
    for _ in range(500):
        text = "".join(random.choice(pieces) + random.choice((" ", "\n", "\n\n")) for _ in range(12))
        parts, gaps = story_of(text)
        assert joined(parts, gaps) in text
        kept += len(parts) > 3
    assert kept > 200


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ('She said , " Salt ? " and left', 'She said, "Salt?" and left.'),
        ('forty minutes . " Salt ?', "forty minutes. Salt?"),
        ("a well - known man ,", "a well-known man."),
        ("It ended .", "It ended."),
    ],
)
def test_what_is_put_together_of_words_is_set_as_people_set_it(words: str, sentence: str) -> None:
    assert written(words.split()) == sentence
