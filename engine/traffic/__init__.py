"""Is speculative decoding worth it on a file of prompts? Each prompt is raced once; the verdict is over all of them.

    prompts.py   reading the file
    rows.py      what one race tells of one drafter
    races.py     racing, a prompt at a time
    verdict.py   medians, the best drafter and k, the verdict and its reason
    saved.py     a study in a file, to go on with
    command.py   study-prompts
    table.py     what it prints

May import: every room below."""
