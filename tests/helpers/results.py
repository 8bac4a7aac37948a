"""Results as the page saves them."""

from typing import Any

from app.catalogue.saved import FORMAT
from engine.doctor import findings
from engine.studies.load import level_metrics
from engine.studies.load.load_file import ROW, SAID
from engine.studies.prompts.rows import Row
from engine.studies.prompts.study_file import result

ROWS = [Row(i, f"prompt {i}", "prompts", "ngram", "auto", 2.0, 0.01, 0.5, 2.0, 8, True) for i in range(1, 5)]
COUNTS = dict.fromkeys(("concurrency", "num_requests", "num_errors", "num_output_tokens"), 1)
LEVEL = {**dict.fromkeys(ROW), **COUNTS, "errors": {}, "wall_s": 1.0, "lane": "a"}
SAID_OF_LOAD = {**dict.fromkeys(SAID, "x"), "temperature": None}
FOUND = [findings.Finding("ok", "files", "Fine."), findings.Finding("fault", "drafts", "None is right.", "Do", 1, 5)]
STUDY = result(ROWS, "of/another", {"scope": "a CPU elsewhere"})
LOAD = level_metrics.report([{**LEVEL, "output_tokens_per_s": 9.0}, {**LEVEL, "lane": "b"}], "ab", SAID_OF_LOAD)
CHECK_UP = findings.report(FOUND, {"target": "m", "drafter": "ngram"})


def joint(*reports: Any) -> dict[str, Any]:
    return {"format": FORMAT, "results": reports}
