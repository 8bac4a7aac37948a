PYTHON ?= python
PROMPT ?= assets/prompts/csv_to_json.txt

.PHONY: run race test check

run:
	$(PYTHON) app.py

race:
	$(PYTHON) -m engine race --prompt-file $(PROMPT)

test:
	$(PYTHON) -m pytest

check:
	ruff check .
	ruff format --check .
	mypy
	$(PYTHON) -m pytest -m ""
