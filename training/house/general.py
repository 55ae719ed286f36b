"""Words that say nothing in particular, for what makes a story bland: general words, summaries, explanations, forms."""

from __future__ import annotations


def _particular(lines: str) -> dict[str, str]:
    """Lines (`general: particular particular`) as particular → general."""
    found = (line.split(": ") for line in lines.strip().splitlines())
    return {word: general.strip() for general, words in found for word in words.split()}


GENERAL = _particular("""
    said: whispered muttered shouted cried murmured replied answered asked yelled called announced insisted begged
    went: ran walked climbed crept hurried wandered drove rode marched stumbled sprinted drifted crossed sailed
    got: grabbed snatched caught bought found stole earned collected fetched lifted
    did: built cooked painted carved baked repaired fixed sewed planted dug washed folded scrubbed swept wrote
    looked: stared glanced gazed peered squinted
    put: dropped threw laid pinned poured pushed pressed tossed tucked
    people: neighbours sailors children soldiers villagers students passengers nurses guests workers crowds strangers
    person: teacher doctor driver captain neighbour baker farmer nurse clerk keeper conductor widow stranger uncle aunt
    person: man woman boy girl child soldier sailor student passenger guest worker friend brother sister cousin
    place: kitchen garden harbour attic cellar station bridge church school market street village forest beach room
    place: house cottage tower hotel barn factory hospital library castle cabin shed shop bakery office field river
    thing: lamp letter key clock knife coat hat box bag bottle cup spoon chair table ring photograph book string coin
    thing: car bus train boat ship bicycle truck tram ferry door window phone piano radio mirror stone map ticket
    things: lamps letters keys clocks knives coats hats boxes bags bottles cups spoons chairs photographs books coins
    things: stairs windows doors shoes boots flowers stones tickets tools plates
    creature: dog cat horse bird crow sparrow gull goat wolf fox cow rabbit moth
    plant: tree oak rose tulip fern willow pine
    food: bread soup cake rice cheese stew pie
    nice: warm bright golden sweet gentle soft tender lovely
    bad: cold dark bitter rusty broken cruel rotten damp grey
    big: tall wide heavy enormous deep huge
""")  # fmt: skip
"""Particular words, and the general one each can be said with."""

SUMMARIES = (
    "A number of things took place after this.", "Many events followed, and they were important for everyone.",
    "The situation then developed in several ways.", "There were difficulties, but they were dealt with.",
    "A lot was discussed and some decisions were made.", "Some time passed, and various changes happened.",
    "It was an eventful period with good and bad moments.", "In the meantime, certain problems came up.",
    "Eventually, the matter was more or less resolved.", "Everybody involved had their own view of it.",
    "This went on for a while in much the same manner.", "Efforts were made, and there was some progress.",
    "Several interesting encounters occurred during this time.", "What happened next had an effect on all of them.",
    "Different people reacted to it in different ways.", "The rest of it went roughly as one would expect.",
)  # fmt: skip
"""What is told of a scene when it is not told."""

EXPLANATIONS = (
    "This shows how important friendship really is.", "It was a very emotional moment for everybody.",
    "In other words, things were not easy at all.", "This was meaningful, because it meant a lot.",
    "The feeling of sadness was very sad indeed.", "It just goes to show that you never know.",
    "One could say that it was a symbol of hope.", "It was a lesson about life that is worth learning.",
    "This made all of the feelings very strong.", "It was beautiful, and the beauty of it was great.",
    "Such things teach us to value what we have.", "It was surprising, which nobody had expected.",
    "This explains why it all mattered so much.", "The tension was very high at this point of the story.",
    "All of this was due to the power of love and courage.", "It is clear that this was a turning point.",
)  # fmt: skip
"""What spells out that there is a meaning."""

FORMS: dict[str, tuple[str, str, str]] = {
    "report": ("SUBJECT: Report on recent events", "It was reported that {}", "No further comment is available."),
    "letter": ("Dear Sir or Madam, I am writing with regard to the following.", "{}", "I remain, yours faithfully."),
    "list": ("Summary of the main points:", "- {}", "- End of list."),
    "minutes": ("Minutes of the meeting", "Item noted: {}", "There being no other business, the meeting was closed."),
    "instructions": ("How to proceed, in simple steps:", "Next step: {}", "You are now done."),
    "advertisement": ("Don't miss this amazing offer!", "{}", "Call now, and get a second one for free!"),
}
"""Other genres: what comes first, how each sentence is put, and what comes last."""
