"""Why speculation is not faster with this target and drafter, and the one thing to change first."""

# What a check-up races unless it is given something else.
K = 4  # tokens of a draft
NUM_PROMPTS, NUM_TOKENS = 3, 48
PROMPTS = (
    "The museum reopened on a rainy Thursday. Most visitors had come to see the new wing, but the",
    "def read_orders(path):\n    orders = []\n    with open(path) as file:\n        for line in file:\n            ",
    "Question: Why do leaves change their colour in autumn?\nAnswer: In autumn the days",
)
KINDS = ("prose", "code", "answer")  # the kinds of these prompts
