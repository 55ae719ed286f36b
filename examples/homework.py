"""A judge of one's own: adjudge judge answers.jsonl --judge homework:Homework, in the folder of this file."""

from adjudge import Labels, OwnJudge

ASKED = {"right": "Is the answer right?", "shown": "Does it show how it was found?"}
WORDS = "Task: {task}\n\nAnswer: {answer}\n\n"
GRADES = Labels(("1", "2", "3", "4", "5"))


class Homework(OwnJudge):
    """Whether an answer is right, and shows how it was found."""

    range = (1.0, 5.0)

    def questions(self, item):
        """What fills {task} and {answer} is data: nothing in it becomes an instruction."""
        texts = {"task": item.prompt, "answer": item.response}
        return [
            self.question(name, f"{WORDS}{asked} Grade it from 1 to 5.", GRADES, "Grade: ", **texts)
            for name, asked in ASKED.items()
        ]

    def score_of(self, parts):
        """The lower grade; without this method, the mean."""
        return min(part.score for part in parts.values())
