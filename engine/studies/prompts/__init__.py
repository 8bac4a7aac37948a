"""Is speculative decoding worth it on a file of prompts? Each prompt is raced once; the verdict is over all of them.

prompts.py      reading the file
rows.py         the result of one race for one drafter
races.py        racing, a prompt at a time
verdict.py      medians, the best drafter and k, the verdict and its reason
study_file.py   a study in a file, to be resumed
"""
