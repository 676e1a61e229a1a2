import random
from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

import pytest
from elastic_pytorch_operator.model.observed import Nodes, NodeView
from elastic_pytorch_operator.planning.rounds.membership import (
    assign_ranks,
    choose_group,
    domains_of,
    torn_workers,
)
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.builders import a_candidate, a_job, a_pod, observed
from tests.operator.planning.rounds.test_next_round import ready
from tests.operator.simulation import Simulation
from tests.situations import situations


def numbers(digits: str) -> list[int]:
    return [int(digit) for digit in digits]


def in_ranks(
    before: Mapping[str, int],
    group: Sequence[Candidate],
    store_port: int = 0,
    unit: int = 1,
    domains: Mapping[str, str] = MappingProxyType({}),
) -> list[Candidate]:
    return assign_ranks(before, group, store_port, unit, domains)


def indices(candidates: Sequence[Candidate]) -> list[int]:
    return [candidate.index for candidate in candidates]


@situations(
    "stay, joiners, wanted, expected",
    {
        "the first group, in order": ("", "0123", 4, "0123"),
        "a unit that lacks a worker waits": ("", "023", 4, "23"),
        "no unit is whole": ("", "034", 4, ""),
        "a member is lost: its unit leaves": ("02345", "", 6, "2345"),
        "a replacement is ready in the same round": ("02345", "1", 6, "234501"),
        "a spare unit takes over": ("02345", "67", 6, "234567"),
        "a replacement goes before a spare unit": ("02345", "167", 6, "234501"),
        "units that stay whole go before those with newcomers": ("023", "167", 2, "23"),
        "more units than are wanted": ("2301", "45", 4, "2301"),
        "two members of different units are lost": ("0345", "", 6, "45"),
    },
)
def test_groups_of_whole_units(stay: str, joiners: str, wanted: int, expected: str) -> None:
    group = choose_group(ready(*numbers(stay)), ready(*numbers(joiners)), wanted, (2, 4, 6), 2)
    assert indices(group) == numbers(expected)


def test_allowed_sizes_hold_beside_units() -> None:
    assert indices(choose_group([], ready(*range(6)), 8, (4, 8), 2)) == [0, 1, 2, 3]


def test_torn_workers_are_ready_and_lack_others_of_their_unit() -> None:
    workers = [*ready(0, 2, 3), a_candidate(1, "starting"), a_candidate(4, "gone")]
    assert torn_workers(workers, 2) == {"w0"}
    assert torn_workers(workers, 1) == frozenset()


@given(
    unit=st.integers(1, 4),
    there=st.sets(st.integers(0, 15)),
    members=st.sets(st.integers(0, 15)),
    wanted=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_units_are_whole_and_none_that_could_train_is_left_out(
    unit: int, there: set[int], members: set[int], wanted: int, seed: int
) -> None:
    order = sorted(members)
    random.Random(seed).shuffle(order)
    stay = ready(*(index for index in order if index in there))
    group = indices(choose_group(stay, ready(*sorted(there - members)), wanted * unit, (), unit))
    whole = [
        first for first in range(0, 16 + unit, unit) if there.issuperset(range(first, first + unit))
    ]
    assert len(group) == unit * min(wanted, len(whole))
    assert set(group) <= there
    for first in {index - index % unit for index in group}:
        assert set(range(first, first + unit)) <= set(group)


STORE_PORT = 29510  # the one of w0


def ranks(members: Sequence[int]) -> dict[str, int]:
    return {f"w{index}": rank for rank, index in enumerate(members)}


@pytest.mark.parametrize(
    ("members", "group", "expected"),
    [
        ("", "201", "012"),
        ("012", "0123", "0123"),
        ("012", "12", "21"),
        ("21", "012", "210"),
        ("0123", "3", "3"),
        ("01", "23", "23"),
    ],
)
def test_survivors_keep_their_ranks(members: str, group: str, expected: str) -> None:
    found = in_ranks(ranks(numbers(members)), ready(*numbers(group)))
    assert indices(found) == numbers(expected)


@situations(
    "members, group, expected",
    {
        "in order": ("", "3210", "0123"),
        "units keep their places": ("450123", "012345", "450123"),
        "the last unit fills the place of the first": ("012345", "2345", "4523"),
        "a unit with a replacement keeps its place": ("0123", "9801", "0189"),
        "newcomers fill the places by index": ("4501", "018967", "670189"),
    },
)
def test_units_keep_their_places(members: str, group: str, expected: str) -> None:
    found = in_ranks(ranks(numbers(members)), ready(*numbers(group)), unit=2)
    assert indices(found) == numbers(expected)


def test_first_unit_changes_its_place_if_its_next_port_is_unknown() -> None:
    assert indices(in_ranks(ranks([0, 1, 2, 3]), ready(0, 1, 2, 3), 29510, 2)) == [2, 3, 0, 1]
    assert indices(in_ranks(ranks([0, 1]), ready(0, 1), 29510, 2)) == [0, 1], (
        "its workers are in order, always"
    )


def racks(**workers: str) -> dict[str, str]:
    """By worker, its domain."""
    return {f"w{index}": rack for rack, of_rack in workers.items() for index in of_rack}


@situations(
    "members, group, domains, expected",
    {
        "neighbours by index": ("", "0123", racks(a="02", b="13"), "0213"),
        "the domain of the lowest index first": ("", "0123", racks(b="03", a="12"), "0312"),
        "workers without a domain last, together": ("", "01234", racks(a="24", b="3"), "24301"),
        "an empty value is a value": ("", "0123", {"w1": "", "w3": ""}, "1302"),
        "no domain is known": ("", "10", {}, "01"),
        "one of a domain is lost": ("024135", "24135", racks(a="024", b="135"), "42513"),
        "its replacement is near": ("42513", "024135", racks(a="024", b="135"), "420135"),
        "its replacement is far": ("42513", "024135", racks(a="24", b="0135"), "425130"),
        "its replacement opens a domain": ("213", "0123", racks(a="2", b="13", c="0"), "2130"),
        "the first of the first domain is lost": ("0312", "123", racks(a="03", b="12"), "321"),
        "a whole domain is lost": ("012345", "2345", racks(a="01", b="23", c="45"), "2345"),
        "the key is set later": ("0123", "0123", racks(a="03", b="12"), "0321"),
    },
)
def test_neighbours_in_rank_are_of_one_domain(
    members: str, group: str, domains: Mapping[str, str], expected: str
) -> None:
    found = in_ranks(ranks(numbers(members)), ready(*numbers(group)), domains=domains)
    assert indices(found) == numbers(expected)


@situations(
    "members, group, domains, expected",
    {
        "by the node of the first worker": ("", "012345", racks(a="034", b="125"), "014523"),
        "in order within a unit": ("", "543210", racks(a="04", b="2"), "014523"),
        "a unit is lost": ("014523", "2345", racks(a="04", b="2"), "4523"),
        "a replaced first worker moves its unit": (
            "0123",
            "012345",
            racks(a="2", b="04"),
            "014523",
        ),
    },
)
def test_neighbouring_units_are_of_one_domain(
    members: str, group: str, domains: Mapping[str, str], expected: str
) -> None:
    found = in_ranks(ranks(numbers(members)), ready(*numbers(group)), unit=2, domains=domains)
    assert indices(found) == numbers(expected)


@situations(
    "group, domains, expected",
    {
        "its domain has another first": ("0123", racks(a="01", b="23"), "1023"),
        "its domain has no other: the next goes first": ("012", racks(a="0", b="12"), "210"),
        "those without a domain go first": ("012", racks(a="0"), "210"),
        "it is alone": ("0", racks(a="0"), "0"),
    },
)
def test_worker_whose_next_port_is_unknown_is_not_first_again(
    group: str, domains: Mapping[str, str], expected: str
) -> None:
    there = numbers(group)
    assert indices(in_ranks(ranks(there), ready(*there), STORE_PORT, domains=domains)) == (
        numbers(expected)
    )


LABELLED = NodeView("labelled", labels={"rack": "r1", "other": "x"})
BARE = NodeView("bare", labels={"other": "x"})
EMPTY = NodeView("empty", labels={"rack": ""})


def test_domain_of_a_worker_is_a_label_of_its_node() -> None:
    nodes = Nodes(
        {
            node.name: node
            for node in (LABELLED, BARE, EMPTY, NodeView("removed", ready=False, removed=True))
        }
    )
    pods = [
        a_pod(i, node=node)
        for i, node in enumerate(("labelled", "bare", "empty", "removed", "not seen yet", ""))
    ]
    found = observed(pods, nodes=nodes)
    assert domains_of(a_job(scheduling={"rankTopologyKey": "rack"}), found) == {
        "w0": "r1",
        "w2": "",
    }
    assert domains_of(a_job(scheduling={"rankTopologyKey": "unheard-of"}), found) == {}
    assert domains_of(a_job(), found) == {}


UNITS = st.integers(1, 3)
# By unit, where its first worker is: in one of three domains, or in none.
DOMAINS = st.dictionaries(st.integers(0, 9), st.sampled_from(["a", "b", ""]))


def workers_of(units: Sequence[int], unit: int) -> list[Candidate]:
    return ready(*(first * unit + number for first in units for number in range(unit)))


def domains_by_worker(domains: Mapping[int, str], unit: int) -> dict[str, str]:
    return {f"w{first * unit}": domain for first, domain in domains.items()}


def by_rank(group: Sequence[Candidate], unit: int) -> list[int]:
    """The units of a group in the order of their ranks; they are whole, and in order."""
    found = indices(group)
    for first in range(0, len(found), unit):
        assert found[first] % unit == 0
        assert found[first : first + unit] == list(range(found[first], found[first] + unit))
    return [index // unit for index in found[::unit]]


def are_together(units: Sequence[int], domains: Mapping[int, str]) -> bool:
    blocks = [domain for domain, _ in groupby(units, key=domains.get)]
    return len(blocks) == len(set(blocks))


@given(
    unit=UNITS,
    members=st.lists(st.integers(0, 9), unique=True),
    group=st.lists(st.integers(0, 9), unique=True),
    domains=DOMAINS,
    first_port=st.sampled_from([STORE_PORT, 0]),
)
def test_units_are_in_order_and_domains_are_together(
    unit: int, members: list[int], group: list[int], domains: dict[int, str], first_port: int
) -> None:
    before = {candidate.worker: rank for rank, candidate in enumerate(workers_of(members, unit))}
    ranked = in_ranks(
        before, workers_of(group, unit), first_port, unit, domains_by_worker(domains, unit)
    )
    units = by_rank(ranked, unit)
    assert sorted(units) == sorted(group)
    assert are_together(units, domains)
    if first_port and len(group) > 1:
        assert (ranked[0].agent.port, before.get(ranked[0].worker)) != (first_port, 0)
    elif not first_port:
        assert [unit in domains for unit in units] == sorted(
            (unit in domains for unit in units), reverse=True
        )


@given(
    unit=UNITS,
    group=st.lists(st.integers(0, 9), unique=True, min_size=1),
    domains=DOMAINS,
    seed=st.integers(0, 99),
)
def test_loss_of_a_unit_moves_one_other_of_each_domain_at_most(
    unit: int, group: list[int], domains: dict[int, str], seed: int
) -> None:
    near = domains_by_worker(domains, unit)
    first = in_ranks({}, workers_of(group, unit), unit=unit, domains=near)
    lost = random.Random(seed).choice(group)
    before = {candidate.worker: rank for rank, candidate in enumerate(first)}
    left = in_ranks(
        before, workers_of([u for u in group if u != lost], unit), unit=unit, domains=near
    )
    was, now = by_rank(first, unit), by_rank(left, unit)
    moved = [u for place, u in enumerate(now) if was[place] != u]
    assert len({domains.get(u) for u in moved}) == len(moved)
    assert [
        d for d, _ in groupby(domains.get(u) for u in was) if any(domains.get(u) == d for u in now)
    ] == [d for d, _ in groupby(domains.get(u) for u in now)], "domains keep their order"
    again = in_ranks({c.worker: r for r, c in enumerate(left)}, left, unit=unit, domains=near)
    assert again == left, "nothing moves where nothing changes"


def test_workers_of_a_rack_are_side_by_side() -> None:
    labels: list[dict[str, str]] = [{"rack": "r1"}, {"rack": "r2"}, {"rack": "r1"}, {}]
    nodes = {f"node-{n}": NodeView(f"node-{n}", labels=own) for n, own in enumerate(labels)}
    job = a_job(replicas=6, minimum=2, maximum=8, scheduling={"rankTopologyKey": "rack"})
    simulation = Simulation(job, nodes=nodes)
    simulation.settle(10)
    group = [simulation.pods[name] for name in simulation.members]
    assert [(pod.index, pod.node[-1]) for pod in group] == [
        (0, "0"), (2, "2"), (4, "0"), (1, "1"), (5, "1"), (3, "3"),
    ]  # fmt: skip
