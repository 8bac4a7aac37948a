PYTHON ?= python
PROMPT ?= assets/prompts/csv_to_json.txt

.PHONY: run race test fast check

run:
	$(PYTHON) app.py

race:
	$(PYTHON) -m engine race --prompt-file $(PROMPT)

test:
	$(PYTHON) -m pytest

fast:
	$(PYTHON) -m pytest -m "not slow and not browser and not gpu"

check:
	ruff check .
	ruff format --check .
	mypy
	$(PYTHON) -m pytest
