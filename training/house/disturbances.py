"""What makes a story worse, a step at a time, and how much of each aspect's score a step costs.

Each takes sentences and gives other sentences, or None where it finds nothing to do. The costs are ours: they say what
a careful reader would hold against a text, and no person's score went into them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from adjudge.training.house.general import EXPLANATIONS, FORMS, GENERAL, SUMMARIES
from adjudge.training.house.texts import Corpus, Story, token_spans

Sentences = list[str]
Step = Callable[[Sentences, Random, Corpus, Story], Sentences | None]


class Disturbance(msgspec.Struct, frozen=True):
    """A way to make a text worse; `costs` is the share of what is left of a score that a step takes, by aspect."""

    step: Step
    costs: dict[str, float]
    otherwise: float = 0.0

    def cost(self, aspect: str) -> float:
        """Of an aspect."""
        return self.costs.get(aspect, self.otherwise)


def _amount(sentences: Sequence[str]) -> int:
    """How many sentences a step touches: a fifth of the text."""
    return max(1, round(len(sentences) / 5))


def _each(change: Callable[[str, Random, Corpus, Story], str | None]) -> Step:
    """A step that changes some sentences, each by itself, and none back to what the author wrote."""

    def step(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
        changed, left = list(sentences), _amount(sentences)
        for place in random.sample(range(len(changed)), len(changed)):
            new = change(changed[place], random, corpus, story)
            if new is not None and new != changed[place] and new not in story.sentences:
                changed[place] = new
                left -= 1
            if not left:
                break
        return changed if changed != sentences else None

    return step


def order(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """Sentences stand elsewhere."""
    changed = list(sentences)
    for _ in range(_amount(sentences) + 1):
        moved = changed.pop(random.randrange(len(changed)))
        changed.insert(random.randrange(len(changed) + 1), moved)
    return changed if changed != sentences else None


def repeat(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """Sentences are said again, in the place of others or besides."""
    changed = list(sentences)
    for _ in range(_amount(sentences)):
        said = random.choice(changed)
        if len(changed) > 2 and random.random() < 0.6:
            changed[random.randrange(len(changed))] = said
        else:
            changed.insert(random.randrange(len(changed) + 1), said)
    return changed if changed != sentences else None


def middle(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """What led from the beginning to the end is gone."""
    if len(sentences) < 4:
        return None
    gone = max(1, round(0.4 * (len(sentences) - 2)))
    start = random.randint(1, len(sentences) - 1 - gone)
    return sentences[:start] + sentences[start + gone :]


def dropped(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """One to three sentences are missing, wherever they stood (Tree of Writing, Table 7)."""
    if len(sentences) < 4:
        return None
    gone = set(random.sample(range(len(sentences)), random.randint(1, min(3, len(sentences) - 2))))
    return [sentence for place, sentence in enumerate(sentences) if place not in gone]


def drift(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """From some place on it is another story."""
    if len(sentences) < 3:
        return None
    start = random.randint(1, len(sentences) - 2)
    gone = len(sentences) - start
    other = corpus.text(random, story, gone).sentences
    begin = random.randint(0, max(0, len(other) - gone))
    return sentences[:start] + list(other[begin : begin + gone])


def cut(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """It stops in the middle of a sentence."""
    kept = len(sentences) - random.randrange(max(1, len(sentences) // 3))
    words = sentences[kept - 1].split()
    if len(words) < 5:
        return None
    return [*sentences[: kept - 1], " ".join(words[: random.randint(2, len(words) - 2)]).rstrip(",.;:!?\"'”")]


ENDINGS = (
    "And then it turned out to be a dream.",
    "Suddenly everything was fine again, and that was that.",
    "Then they all died.",
    "And they lived happily ever after. The end.",
    "Anyway, that is how it ended.",
    "In conclusion, it is important to always be yourself.",
    "Out of nowhere a meteor fell and it was over.",
    "Everyone clapped and went home.",
)


def forced_ending(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """It breaks off and is ended by force."""
    if sentences[-1] in ENDINGS:
        return None
    kept = max(2, len(sentences) - random.randint(1, max(1, len(sentences) // 3)))
    return [*sentences[:kept], random.choice(ENDINGS)]


@_each
def foreign(sentence: str, random: Random, corpus: Corpus, story: Story) -> str | None:
    """A sentence of another story."""
    return corpus.sentence(random, story)


@_each
def babble(sentence: str, random: Random, corpus: Corpus, story: Story) -> str | None:
    """A sentence by chance, word after word."""
    return corpus.babble(sentence, random, random.choice((1, 1, 2)))


@_each
def misplaced(sentence: str, random: Random, corpus: Corpus, story: Story) -> str | None:
    """Words that fit their neighbours, and nothing else."""
    spans = token_spans(sentence)
    tokens = [sentence[start:end] for start, end in spans]
    places = [n for n, token in enumerate(tokens) if token.isalpha() and len(token) > 3 and token.islower()]
    for place in random.sample(places, max(1, round(0.4 * len(places))) if places else 0):
        left, right = (tokens[n] if 0 <= n < len(tokens) else "" for n in (place - 1, place + 1))
        tokens[place] = corpus.misplaced(left, tokens[place], right, random)
    gaps = [sentence[end:start] for (_, end), (start, _) in zip([(0, 0), *spans], spans, strict=False)]
    told = "".join(piece for pair in zip(gaps, tokens, strict=True) for piece in pair)
    return told + sentence[spans[-1][1] :] if places else None


@_each
def shuffled_words(sentence: str, random: Random, corpus: Corpus, story: Story) -> str | None:
    """The words of a sentence out of order, the blanks between them where they were."""
    words, gaps = _words(sentence)
    if len(words) < 4:
        return None
    start = random.randrange(len(words) - 3)
    part = words[start : start + random.randint(4, 12)]
    random.shuffle(part)
    return _said([*words[:start], *part, *words[start + len(part) :]], gaps)


@_each
def dropped_words(sentence: str, random: Random, corpus: Corpus, story: Story) -> str | None:
    """A third of the words are missing."""
    words, gaps = _words(sentence)
    gone = set(random.sample(range(len(words)), len(words) // 3))
    left = [n for n in range(len(words)) if n not in gone]
    return _said([words[n] for n in left], [gaps[n] for n in left]) if gone else None


@_each
def repeated_words(sentence: str, random: Random, corpus: Corpus, story: Story) -> str | None:
    """Words are stammered, or a phrase is said over again."""
    words, gaps = _words(sentence)
    if len(words) < 4:
        return None
    start, size = random.randrange(len(words) - 2), random.randint(1, 3)
    stop, more = min(start + size, len(words)), random.randint(2, 3) - 1
    again = [" ", *gaps[start + 1 : stop]]
    return _said([*words[:stop], *words[start:stop] * more, *words[stop:]], [*gaps[:stop], *again * more, *gaps[stop:]])


def _words(sentence: str) -> tuple[list[str], list[str]]:
    """The words of a sentence, and the blanks before each."""
    pieces = re.split(r"(\s+)", sentence.strip())
    return pieces[::2], ["", *pieces[1::2]]


def _said(words: Sequence[str], gaps: Sequence[str]) -> str:
    """Words, each after the blanks before it; none before the first."""
    return "".join(piece for pair in zip(gaps, words, strict=True) for piece in pair).lstrip()


def _both_ways(pairs: str) -> dict[str, str]:
    """Pairs (`a/b c/d`) as a → b, b → a, c → d, d → c."""
    found = [pair.split("/") for pair in pairs.split()]
    return {**{b: a for a, b in found}, **dict(found)}


OPPOSITES = _both_ways(
    """
    happy/sad always/never loved/hated good/bad first/last old/young day/night before/after dead/alive won/lost
    opened/closed inside/outside remember/forget everyone/nobody everything/nothing hot/cold friend/enemy
    friends/enemies morning/evening laughed/wept true/false big/small rich/poor strong/weak new/ancient easy/hard
    quiet/loud smiled/frowned better/worse more/less with/without summer/winter near/far early/late
    """
)
_OPPOSED = re.compile(rf"\b(?:(an?)( ))?({'|'.join(OPPOSITES)})\b(?!['’-])", re.IGNORECASE)
_VERB = re.compile(
    r"(?<=\w )(was|were|is|are|could|would|will|can|should|ha[ds](?= \w+(?:ed|en|one)\b))\b(?!\s+not\b)(?!['’]t\b)"
)
_DENIED = re.compile(r"\b(was|were|is|are|could|would|will|can|should|had|has)\s+not\b")


def _opposed(found: re.Match[str]) -> str:
    """The opposite of a word, as it is written, behind the article it wants."""
    article, blank, word = found[1] or "", found[2] or "", OPPOSITES[found[3].lower()]
    if article:
        article = article[0] + ("n" if word[0] in "aeiou" else "")
    return article + blank + (word.capitalize() if found[3][0].isupper() else word)


@_each
def contradiction(sentence: str, random: Random, corpus: Corpus, story: Story) -> str | None:
    """A sentence says the opposite of what it said, in sound grammar."""
    turned = _OPPOSED.sub(_opposed, sentence)
    if turned != sentence and random.random() < 0.6:
        return turned
    if _DENIED.search(sentence):
        return _DENIED.sub(r"\1", sentence, count=1)
    return _VERB.sub(r"\1 not", sentence, count=1) if _VERB.search(sentence) and "?" not in sentence else None


PEOPLE = _both_ways(
    "he/she his/her himself/herself man/woman father/mother son/daughter brother/sister boy/girl husband/wife"
) | {"him": "her", "hers": "his"}
_OBJECT = re.compile(
    r"\b(her|Her)\b(?!\s+\w)|\b(her|Her)\b(?=\s+(?:a|an|and|as|at|back|but|by|for|from|he|how|if|in|into|it|of|"
    r"off|on|out|over|she|so|that|the|then|they|through|to|too|up|was|what|when|where|who|with)\b)"
)
"""Where "her" is whom something is done to, and not whose something is: no noun can follow."""


@_each
def people(sentence: str, random: Random, corpus: Corpus, story: Story) -> str | None:
    """Who does what is mixed up."""
    objects = {found.start() for found in _OBJECT.finditer(sentence)}

    def other(found: re.Match[str]) -> str:
        word = "him" if found.start() in objects else PEOPLE.get(found[0].lower(), found[0])
        return word.capitalize() if found[0][0].isupper() else word

    turned = re.sub(r"[A-Za-z]+", other, sentence)
    return turned if turned != sentence else None


def plain(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """Only the bare beginning of each sentence is left."""
    bare = []
    for sentence in sentences:
        first = re.split(r"[,;:—–]|\s(?:and|but|because|while|as|when|which|that|who)\s", sentence)[0].strip()
        words, gaps = _words(first if len(first.split()) > 2 else sentence)
        bare.append(_said(words[:9], gaps[:9]).rstrip(",.;:!?\"'”") + ".")
    return bare if sum(map(len, bare)) < 0.75 * sum(map(len, sentences)) else None


_PARTICULAR = re.compile(rf"\b(an |An )?({'|'.join(GENERAL)})\b")


def _general(article: str | None, word: str) -> str:
    """A general word, behind the article it wants: none begins with a vowel."""
    return (article or "").replace("n ", " ") + GENERAL[word]


def bland(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """General words stand for the particular ones."""
    said = [_PARTICULAR.sub(lambda found: _general(found[1], found[2]), sentence) for sentence in sentences]
    return said if sum(map(str.__ne__, said, sentences)) >= len(said) / 3 else None


def summary(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """A part is not told, but said to have happened."""
    gone = max(1, round(len(sentences) / 3))
    start = random.randint(min(1, len(sentences) - gone), len(sentences) - gone)
    told = random.sample(SUMMARIES, min(max(1, gone // 2), len(SUMMARIES)))
    return [*sentences[:start], *told, *sentences[start + gone :]]


def explained(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """What it means is spelled out."""
    changed = list(sentences)
    for words in random.sample(EXPLANATIONS, min(_amount(sentences) + 1, len(EXPLANATIONS))):
        changed.insert(random.randint(1, len(changed)), words)
    return changed


def transfer(sentences: Sentences, random: Random, corpus: Corpus, story: Story) -> Sentences | None:
    """It is put in the form of another genre."""
    first, each, last = FORMS[random.choice(list(FORMS))]
    if any(sentences[0] == begun for begun, _, _ in FORMS.values()):
        return None
    return [first, *(each.format(sentence) for sentence in sentences), last]


def _costs(text: str) -> dict[str, float]:
    names = ("relevance", "coherence", "empathy", "surprise", "engagement", "complexity")
    more = ("ending", "style", "character development", "quality", "fluency")
    return dict(zip((*names, *more), map(float, text.split()), strict=True))


#                                     rel  coh  emp  sur  eng  cpx  end  sty  cha  qua  flu
DISTURBANCES: dict[str, Disturbance] = {
    "order": Disturbance(order, _costs(".25 .50 .34 .24 .40 .24 .38 .28 .32 .48 .18"), 0.3),
    "foreign": Disturbance(foreign, _costs(".36 .52 .36 .20 .40 .22 .34 .26 .36 .48 .16"), 0.3),
    "babble": Disturbance(babble, _costs(".34 .52 .42 .28 .48 .34 .36 .50 .38 .52 .54"), 0.45),
    "misplaced": Disturbance(misplaced, _costs(".26 .44 .36 .24 .40 .26 .30 .46 .32 .46 .46"), 0.35),
    "contradiction": Disturbance(contradiction, _costs(".20 .44 .32 .18 .32 .20 .26 .24 .32 .42 .18"), 0.3),
    "people": Disturbance(people, _costs(".16 .42 .34 .18 .30 .18 .22 .24 .44 .38 .22"), 0.3),
    "repeat": Disturbance(repeat, _costs(".22 .40 .36 .42 .46 .42 .34 .44 .36 .48 .30"), 0.4),
    "middle": Disturbance(middle, _costs(".22 .42 .34 .24 .34 .42 .30 .22 .42 .40 .14"), 0.3),
    "dropped": Disturbance(dropped, _costs(".13 .26 .20 .14 .20 .25 .18 .13 .25 .24 .08"), 0.18),
    "drift": Disturbance(drift, _costs(".48 .54 .40 .26 .44 .30 .54 .28 .44 .52 .14"), 0.4),
    "cut": Disturbance(cut, _costs(".16 .28 .26 .30 .32 .22 .70 .30 .24 .36 .34"), 0.3),
    "forced ending": Disturbance(forced_ending, _costs(".24 .42 .38 .42 .42 .30 .66 .36 .36 .44 .14"), 0.35),
    "shuffled words": Disturbance(shuffled_words, _costs(".20 .40 .36 .24 .42 .28 .28 .54 .30 .46 .58"), 0.35),
    "dropped words": Disturbance(dropped_words, _costs(".18 .34 .32 .20 .36 .30 .24 .50 .26 .40 .54"), 0.35),
    "repeated words": Disturbance(repeated_words, _costs(".18 .32 .32 .24 .38 .28 .24 .50 .24 .40 .54"), 0.35),
    "plain": Disturbance(plain, _costs(".14 .20 .36 .26 .36 .54 .22 .44 .36 .32 .14"), 0.3),
    "bland": Disturbance(bland, _costs(".14 .16 .34 .34 .36 .40 .18 .44 .34 .34 .16"), 0.3),
    "summary": Disturbance(summary, _costs(".26 .34 .42 .36 .46 .42 .34 .38 .42 .44 .10"), 0.35),
    "explained": Disturbance(explained, _costs(".16 .22 .30 .36 .40 .26 .34 .44 .32 .38 .14"), 0.3),
    "transfer": Disturbance(transfer, _costs(".26 .28 .44 .20 .44 .26 .38 .50 .36 .44 .16"), 0.3),
}
HARD = ("order", "foreign", "contradiction", "drift", "middle", "forced ending")
"""What is seen by how sentences follow each other alone: done twice as often as the others."""
