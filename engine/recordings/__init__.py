"""Race files: written atomically, read as untrusted input, replayed. Standard library only.

recording.py    a race as one value: built, read, written, summarised
check.py        whether a file is what it claims to be
extras.py, candidates.py    optional members of a race file
compare.py      whether a repeated race gave the recorded tokens
replay.py       its events at their own pace
steps_csv.py    its steps as a table
words.py        its circumstances in words
"""
