"""MuMA-ToM: what two people in a household believe, want, and think that the other wants.

225 episodes with four questions each. In 150 of them people talk: the film shows both, and the text
is their talk. In 75 nobody talks: the film shows one person, the text tells what the other does.
Every record also has the whole narrative, which tells what the film shows; it is never shown.
"""
