"""The genres of writing that a benchmark tells apart, and the four traits by which each is described.

The genres are HoWToBench's (A.3); their definitions and traits are ours.
"""

from __future__ import annotations

import msgspec

from adjudge.training.writing.passages import Language


class Genre(msgspec.Struct, frozen=True):
    """A genre by its name, what it is, and the traits that good texts of it are asked for."""

    name: str
    meaning: str
    traits: tuple[str, str, str, str]


def _genres(*entries: tuple[str, str, str]) -> dict[str, Genre]:
    made = {}
    for name, meaning, traits in entries:
        first, second, third, fourth = traits.split("|")
        made[name] = Genre(name, meaning, (first, second, third, fourth))
    return made


GENRES: dict[Language, dict[str, Genre]] = {
    "en": _genres(
        ("fiction", "an invented story told by its scenes", "plot|characters|theme|language and style"),
        ("poetry", "lines of verse, dense in image and sound", "imagery|form and rhythm|theme|emotion"),
        ("prose", "scenes, places or memories told without verse or plot", "subject|imagery|mood|language and style"),
        ("essay", "one person's thoughts on a subject, freely arranged", "subject|point of view|thought|style"),
        ("argumentative", "a claim and the reasons for it, to convince", "claim|reasons|evidence|structure"),
        ("report", "facts and findings on a matter, in order", "subject|findings|data|structure"),
        ("summary", "a longer matter in short", "subject|main points|results|brevity"),
        ("letter", "words from one person to another", "sender and receiver|occasion|content|tone"),
        ("application", "a formal request for something", "applicant|request|grounds|form"),
        ("speech", "a talk prepared for an audience", "audience|message|arc|devices"),
        ("delivery", "words of welcome, thanks or announcement on an occasion", "occasion|audience|message|tone"),
        ("plan", "what is to be done, step by step", "goal|steps|time and means|checks"),
        ("contract", "an agreement of parties and its terms", "parties|subject|duties|terms and remedies"),
        ("official", "a document of an authority", "issuer and receivers|matter|measures|form"),
    ),
    "zh": _genres(
        ("小说", "用场景讲述的虚构故事", "情节|人物|主题|语言与风格"),
        ("诗歌", "分行的韵文，意象与声音凝练", "意象|形式与节奏|主题|情感"),
        ("散文", "不分行、不重情节地写景、记事、忆人", "题材|意象|意境|语言与风格"),
        ("随笔", "一个人对某事自由的所思所感", "题材|视角|思想|文风"),
        ("议论文", "提出主张并说理以服人", "论点|理由|论据|结构"),
        ("报告", "有条理地陈述某事的事实与结论", "对象|结论|数据|结构"),
        ("总结", "把较长的内容或工作写得简短", "对象|要点|成效|简洁"),
        ("书信", "一个人写给另一个人的话", "写信人与收信人|缘由|内容|语气"),
        ("申请书", "正式提出的请求", "申请人|请求|理由|格式"),
        ("演讲稿", "为听众准备的讲话", "听众|主旨|层次|手法"),
        ("致辞", "在某个场合的欢迎、答谢或宣布", "场合|听众|主旨|语气"),
        ("计划", "按步骤写明要做的事", "目标|步骤|时间与条件|检查"),
        ("合同", "各方的约定及其条款", "当事人|标的|义务|条款与违约责任"),
        ("公文", "机关发布的文书", "发文与收文单位|事项|措施|格式"),
    ),
}
"""By language and name; the genres stand in the same order in each."""


def genre_of(name: str, language: Language) -> Genre | None:
    """The genre that a name in any language means, in the words of this one; None for one of the user's own."""
    for known in GENRES.values():
        if name in known:
            return list(GENRES[language].values())[list(known).index(name)]
    return None
