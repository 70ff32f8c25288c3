"""Replies of many forms: what is read is what was meant, and what leaves a choice is refused."""

from __future__ import annotations

import pytest

from sally_anne.data.items import Option
from sally_anne.harness.answers import read_answer

ROOMS = (Option("A", "red"), Option("B", "purple"))

MEANT = {
    "B": r"""
B
b
B.
(B)
[B]
**B**
*B.*
`B`
B)
b) purple
(b) purple
B. purple
B: purple
B - purple
Option B
option (b)
Option B.
Choice B
The correct option is B.
The correct choice is (B).
The right option is B
The best option is B.
Correct option: B
It's B.
It’s (b).
It is B.
It must be B.
This is B.
I choose B.
I pick B
I select (B).
I would choose option B.
I'd go with B.
I am going with B, as it left.
I say B.
Response: B
Response: (b)
Reply: B
Solution: B
Conclusion: B
Answer: B
answer:b
ANSWER = B
Answer - B
answer — B
Answer: **B**
Answer: "B"
Answer: (B).
Answer: B. purple
Answer: (b) purple
Final answer: B
My answer is B.
The answer is B
The answer is (B) purple.
The answer is option B.
The answer must be B.
The answer should be B
The answer here is B.
The correct answer is B because the door was closed.
So the answer is B.
Therefore, the answer is: B
\boxed{B}
$\boxed{B}$
The answer is \boxed{\text{B}}
\boxed{(B)}
<answer>B</answer>
<answer>(B)</answer>
<answer> b. </answer>
<answer>purple</answer>
<think>It may be red, or A.</think>B
<think>A? Then again no.</think> The answer is B.
<think>Answer: A</think>(b)
{"answer": "B"}
{"answer": "purple"}
{'answer': 'B'}
```json {"answer": "b"} ```
B because A is not supported.
B because the red door is closed.
B, because it saw nothing.
B since it did not see red.
B as option A is wrong.
(B) because red is where it began.
purple
Purple.
"purple"
The purple room.
The purple room
It is in the purple room.
It believes it is in the purple room.
The agent thinks purple.
Purple because it went from red into it.
Purple, since it saw it leave red.
not red, but purple
It is purple, not red.
It is not in the red room; it is in the purple room.
It isn't red. It is purple.
It is in the purple room rather than in the red room.
Anything but red: purple
I think it is purple.
Probably purple.
Most likely (B).
It saw everything, so it is purple.
I am not sure, but purple.
It went from red to purple. The answer is purple.
Option A is wrong. Option B is right.
A is not supported. The answer is B.
The answer is red. No: it saw all, so the answer is purple.
A, no wait. The answer is B.
First red, then purple. Answer: B
Both are possible. I'd say the answer is purple.
The room is purple and nothing else.
The answer is not red; it is purple
""",
    "A": """
A
a.
(A)
It's A.
Response: A
The correct option is A.
A because B is not supported.
Answer: a
Answer - A
red
The red room, because purple was entered unseen.
<answer>A</answer>
<think>purple</think>red
The answer is red since it never saw purple.
""",
}

# Nothing said, both said, neither, a question, a condition, a denial, taken back, or other words.
OPEN = r"""
I do not know.
I cannot tell.
Neither.
None of the above.
Both.
Both A and B.
Either A or B.
Either red or purple.
A or B
A/B
A, B
A and B
(A) or (B)
(a), (b)
A & B
red or purple
red/purple
red, purple
red and purple
The answer is A or B.
The answer is either A or B.
The answer is red or purple.
The answer is between A and B.
Answer: A or B
Answer: A/B
Answer: A, B
Answer: red or purple?
Is it B?
Is it purple?
Could it be B?
Maybe red, maybe purple.
B? A?
Answer: B?
Answer: A? Answer: B?
Is the answer B?
The answer is B, isn't it? Or A?
I wonder whether it is purple.
Whether it is purple I cannot say.
If it saw the move, it is purple.
If it saw the move, the answer is B.
If it saw it, B; if it did not, A.
The answer is B if it saw the move.
It is purple if it saw the move, and red if it did not.
Unless the door was open, it is red.
It depends: red if the door was closed.
Suppose it is purple.
It might be B.
It might be purple.
It may be red.
It could be red.
It may be red. It may be purple.
It might be red or it might be purple.
Not A.
Not B.
not red
Not the red room
It is not red.
It isn't purple.
It is not in the purple room.
It cannot be red.
It is never red.
It does not think it is red.
It doesn't believe it is in the red room.
The agent would never say purple.
I do not think that it is B.
I don't believe the answer is in the purple room
I doubt it is red.
Anything but B.
anything but (b)
Everything but red.
Any room other than red.
All except purple.
neither red nor purple
It is neither A nor B.
A is wrong.
A is wrong. B is wrong.
B is not supported.
Option B is incorrect.
(b) is impossible.
Red is unlikely.
purple isn't right
A, no wait, B
Answer: A, no wait, B
Answer: B. Wait, A.
The answer is A. No, B.
B, or rather, no, A
B, or rather A
The answer is red. Wait, it saw the door.
The answer is red, no, purple
purple, I mean red
red... hmm, purple
Answer: red. Scratch that.
B. On second thought, A.
Answer: A. Correction: B.
Options: A. red B. purple
The options are A and B.
The options are red and purple.
Choose A or B.
Please choose between red and purple.
It went from red to purple.
First red, then purple.
The red door is open and the purple door is closed.
red purple
purple red
The answer is hard to tell: red, purple.
The answer is unclear.
Answer:
Answer: C
C
(c)
green
The green room.
Answer: green
a room
A room.
It is a room that I cannot see.
An answer is a thing.
A agent walks into a room.
the option a person has
infrared
reddish
purplish
Bob
Ab
{"answer": "C"}
{"answer": "?"}
{"answer": "red or purple"}
{"answer": "A"} {"answer": "B"}
<think>It is B.
<think>The answer is B</think>
<think>B</think> I cannot say.
<answer>A or B</answer>
<answer></answer>
\boxed{}
\boxed{A, B}
"""

LISTED = [
    "Answer:\nA. red\nB. purple",
    "A. red\nB. purple",
    "(A) red\n(B) purple",
    "Which is it?\na) red\nb) purple",
    "A: because it moved\nB: because it saw",
    "A\nB",
]
REFUSED = [*OPEN.strip("\n").split("\n"), "", *LISTED]


@pytest.mark.parametrize(
    ("reply", "label"),
    [(reply, label) for label, text in MEANT.items() for reply in text.strip("\n").split("\n")],
)
def test_what_is_meant_is_read(reply: str, label: str) -> None:
    assert read_answer(reply, ROOMS, "robust") == label


@pytest.mark.parametrize("reply", REFUSED)
def test_what_leaves_a_choice_is_refused(reply: str) -> None:
    assert read_answer(reply, ROOMS, "robust") is None


def test_there_are_many_and_half_of_them_leave_a_choice() -> None:
    meant = [reply for text in MEANT.values() for reply in text.strip("\n").split("\n")]
    assert len(set(meant)) == len(meant) and len(set(REFUSED)) == len(REFUSED)
    assert len(meant) >= 100 and len(REFUSED) >= len(meant)
