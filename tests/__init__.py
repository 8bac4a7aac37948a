"""The tests: a folder for each room of the engine and of the page (`engine`: the files at its root), `browser` in a
real Chromium, `tools`.

What two files share is in `helpers`; no test file imports another. `fixtures`: trained models, heads, golden lists."""
