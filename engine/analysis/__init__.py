"""Pure functions from the events of a race to numbers and sentences. Standard library only.

metrics.py      the definition of every number
verdict.py      whether two lanes wrote the same tokens
loops.py        whether a text repeats itself
breakdown.py    where the speed comes from
roofline.py     how close plain decoding came to the memory bandwidth
inflate.py      how demos make a ratio larger
sharing.py      several users on one device
"""
