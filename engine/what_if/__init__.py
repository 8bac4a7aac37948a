"""One race, every size of its drafts. A committed token does not depend on the drafter, so drafting once after every
committed token gives a drafter's race at every k, and at every size of its trees, step for step.

    tables.py   tables of drafts by position, and the steps of a race at any size
    oracle.py   the fastest sequence of sizes, known only in hindsight
    ask.py      builds the tables of a finished race
    read.py     reads the tables of a recording
    odds.py     what would be kept of drafts drawn by probability
    judged.py   all of this for one race, as its recording stores it

Counts are exact, times are computed. Standard library only."""
