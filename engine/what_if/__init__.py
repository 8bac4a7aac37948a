"""One race, every k: a committed token does not depend on who drafted it, so a drafter that is asked once after every
committed token tells its race at every k, step for step.

    tables.py   a table of drafts by position, and the steps of a race at any k
    costs.py    what steps and drafts cost, from a race's own
    oracle.py   the fastest sequence of k, known only afterwards
    auto.py     the rule of `auto` k on a table and a pretended clock
    ask.py      the tables of a race that was held
    read.py     the tables of a recording, checked against its race
    survey.py   a lane whose steps draft every number of tokens, to know what they cost
    judged.py   all of this for one race, as its recording holds it

Counts are exact, times are computed. Standard library only. May import: every room below; the command line and `bench`
import it."""
