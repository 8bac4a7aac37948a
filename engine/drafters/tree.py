"""A draft in the making: a tree whose nodes are ranked by their chance of being kept. Standard library only.

A node's chance is its parent's times its own; so the first nodes of the ranking are a tree, the most that so many rows
can be expected to keep, and every shorter ranking is a part of it."""

from collections.abc import Sequence

from ..core.interfaces import Draft, Node
from .chances import of_copy, of_margin, of_scores, with_copies
from .ngram import NgramDrafter

LEAST = 0.004  # nodes with a smaller chance are left out: no price of a row is that low
# A copied token with this chance is believed without the drafter's opinion on it, and so is what it copies next.
SURE = 0.9


class Tree:
    """The draft after `token_ids`.

    copies: where copies are found, if anywhere.
    longest: the depth of the deepest nodes.
    branches: whether a node may have several children; if not, the ranking is a chain.
    weight: of the drafter's scores, from `sharpness`.
    """

    def __init__(
        self, copies: NgramDrafter | None, token_ids: Sequence[int], longest: int, branches: bool, weight: float
    ) -> None:
        self.root = Node()
        self._copies, self._token_ids, self._longest, self._branches = copies, token_ids, longest, branches
        self._weight = weight
        self._copy_after(self.root)

    def ranked(self) -> list[Node]:
        """All nodes but the root, by falling chance; a parent comes before its children."""
        nodes: list[Node] = []
        stack = [self.root]
        while stack:
            node = stack.pop()
            children = list(node.children.values())
            if not self._branches and len(children) > 1:
                children = [max(children, key=lambda child: child.own)]
            for child in children:
                child.chance = node.chance * child.own
                if child.chance >= LEAST:
                    nodes.append(child)
                    stack.append(child)
        nodes.sort(key=lambda node: (-node.chance, node.path))
        return nodes

    def _copy_after(self, node: Node) -> None:
        """Add copies that continue the path to a node."""
        room = self._longest - node.depth
        if self._copies is None or room <= 0:
            return
        for rank, copied in enumerate(self._copies.look(self._token_ids, node.path, room)):
            at = node
            for i, token_id in enumerate(copied.token_ids):
                chance = of_copy(copied.match + i, copied.agreed, i, rank)
                at = self._child(at, token_id, chance, copied.start + i)
                if at.chance < LEAST:
                    break

    def expand(self, node: Node, rated: Sequence[tuple[int, float]]) -> None:
        """Add what may follow a node. rated: see `BranchingDrafter.expand`; a second token of -1 stands for any."""
        node.is_expanded = True
        if node.source < 0 and node.parent is not None:
            self._copy_after(node)
        if not rated:
            return
        (first, best), *rest = rated
        if rest and rest[0][0] < 0:
            chances = {first: of_margin(best - rest[0][1], self._weight)}
        else:
            token_ids, scores = zip(*rated, strict=True)
            chances = dict(zip(token_ids, of_scores(scores, self._weight), strict=True))
        copies = {token_id: child.own for token_id, child in node.children.items()}
        for token_id, chance in with_copies(chances, copies).items():
            if token_id in node.children:
                node.children[token_id].own = chance
            else:
                self._child(node, token_id, chance, -1)

    def draft(self, nodes: Sequence[Node]) -> Draft:
        """The draft of these nodes, the first ones of the ranking."""
        rows = {id(self.root): 0} | {id(node): row for row, node in enumerate(nodes, 1)}
        parents = tuple(rows[id(node.parent)] for node in nodes)
        sources = tuple(node.source for node in nodes)
        token_ids, chances = tuple(node.path[-1] for node in nodes), tuple(round(node.chance, 4) for node in nodes)
        first = next((i for i, source in enumerate(sources) if source >= 0), len(nodes))
        is_run = all(source == sources[first] + i for i, source in enumerate(sources[first:]))
        if parents == tuple(range(len(nodes))) and (is_run or not self._branches):
            copied = (first, sources[first]) if is_run and first < len(nodes) else ()
            return Draft(token_ids, copied=copied, chances=chances)
        return Draft(token_ids, parents=parents, sources=sources, chances=chances)

    def _child(self, node: Node, token_id: int, own: float, source: int) -> Node:
        """The child with this token, new unless there is one."""
        child = node.children.get(token_id)
        if child is None:
            path = (*node.path, token_id)
            child = Node(path, own, source, node, node.chance * own)
            node.children[token_id] = child
        return child
