"""The contract of every MetadataStore. Subclass it and give it sessions on one ensemble."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from rtolap.base.errors import CommitConflict, Refused, SessionLost
from rtolap.metadata.election import identities
from rtolap.metadata.store import COMMIT_BYTES_MAX, Check, Create, Delete, MetadataStore, Operation, Put

from tests.support.waiting import until

WAIT_S = 15.0


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    until(condition, what, timeout_s=timeout_s)


class Sessions:
    """A subclass opens sessions and loses them."""

    def open(self) -> MetadataStore:
        raise NotImplementedError

    def expire(self, store: MetadataStore) -> None:
        raise NotImplementedError


class MetadataStoreContract:
    @pytest.fixture
    def sessions(self) -> Iterator[Sessions]:
        raise NotImplementedError

    @pytest.fixture
    def store(self, sessions: Sessions) -> MetadataStore:
        return sessions.open()

    def test_a_node_that_is_not_there_reads_as_none(self, store: MetadataStore) -> None:
        assert store.get("/a") is None
        assert store.children("/a") == ()

    def test_a_created_node_is_read_by_another_session(
        self, store: MetadataStore, sessions: Sessions
    ) -> None:
        store.commit([Create("/a", b"1")])
        other = sessions.open()
        other.sync()
        node = other.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"1", 0)

    def test_missing_parents_are_made(self, store: MetadataStore) -> None:
        store.commit([Create("/x/y/z", b"1"), Create("/x/q", b"2")])
        assert store.children("/x") == ("q", "y")
        assert store.children("/x/y") == ("z",)

    def test_a_node_goes_and_one_of_a_parent_that_is_missing_comes_in_one_commit(
        self, store: MetadataStore
    ) -> None:
        """Delete and create in one commit, as when something is dropped and its request is noted."""
        store.commit([Create("/dropped/one", b"1")])
        store.commit([Delete("/dropped/one"), Create("/noted/first", b"a")])
        assert store.children("/dropped") == ()
        store.commit([Create("/dropped/one", b"2")])
        with pytest.raises(CommitConflict):
            store.commit([Delete("/dropped/one"), Create("/noted/first", b"b")])
        assert (store.children("/dropped"), store.children("/noted")) == (("one",), ("first",))

    def test_a_second_create_conflicts(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"1")])
        with pytest.raises(CommitConflict):
            store.commit([Create("/a", b"2")])

    def test_a_put_needs_the_version_it_read(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"1")])
        store.commit([Put("/a", b"2", 0)])
        with pytest.raises(CommitConflict):
            store.commit([Put("/a", b"3", 0)])
        node = store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"2", 1)

    def test_put_check_and_delete_of_nothing_conflict(self, store: MetadataStore) -> None:
        for operation in (Put("/no", b"", 0), Check("/no", 0), Delete("/no")):
            with pytest.raises(CommitConflict):
                store.commit([operation])

    def test_a_commit_is_all_or_nothing(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"1")])
        with pytest.raises(CommitConflict):
            store.commit([Create("/b", b"1"), Put("/a", b"2", 7)])
        assert store.get("/b") is None
        with pytest.raises(CommitConflict):
            store.commit([Put("/a", b"2", 0), Check("/a", 0)])
        store.commit([Check("/a", 0), Check("/a", -1), Create("/b", b"1")])
        assert store.get("/b") is not None

    def test_a_commit_that_is_too_large_is_refused_and_breaks_nothing(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"1"), Create("/live", b"", ephemeral=True)])
        half = b"x" * (COMMIT_BYTES_MAX // 2)
        for operations in (
            [Put("/a", 3 * half, 0)],
            [Create("/b", half), Create("/large", half + b"x")],
        ):
            with pytest.raises(Refused, match=r"too large for a node: /(a|large)"):
                store.commit(operations)
        assert store.children("/") == ("a", "live"), "and the session lives"
        store.commit([Put("/a", b"x" * (COMMIT_BYTES_MAX - len("/a")), 0)])
        node = store.get("/a")
        assert node is not None
        assert (len(node.data), node.version) == (COMMIT_BYTES_MAX - len("/a"), 1)

    def test_a_node_with_children_is_not_deleted(self, store: MetadataStore) -> None:
        store.commit([Create("/a/b", b"")])
        with pytest.raises(CommitConflict):
            store.commit([Delete("/a")])
        store.commit([Delete("/a/b"), Delete("/a")])
        assert store.get("/a") is None

    def test_of_two_writers_one_wins(self, store: MetadataStore, sessions: Sessions) -> None:
        store.commit([Create("/n", b"0")])
        others = [store, sessions.open()]
        conflicts: list[CommitConflict] = []

        def add(mine: MetadataStore) -> None:
            done = 0
            while done < 25:
                node = mine.get("/n")
                assert node is not None
                try:
                    mine.commit([Put("/n", str(int(node.data) + 1).encode(), node.version)])
                    done += 1
                except CommitConflict as error:
                    conflicts.append(error)

        threads = [threading.Thread(target=add, args=(mine,)) for mine in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        store.sync()
        node = store.get("/n")
        assert node is not None
        assert node.data == b"50"

    def test_a_watch_tells_of_data_children_and_deletion(
        self, store: MetadataStore, sessions: Sessions
    ) -> None:
        other = sessions.open()
        seen: list[tuple[bytes | None, tuple[str, ...]]] = []

        def look() -> None:
            node = other.get("/w")
            seen.append((None if node is None else node.data, other.children("/w")))

        watch = other.watch("/w", look)
        store.commit([Create("/w", b"1")])
        eventually(lambda: (b"1", ()) in seen, "creation is told")
        store.commit([Put("/w", b"2", 0)])
        eventually(lambda: (b"2", ()) in seen, "data is told")
        store.commit([Create("/w/c", b"")])
        eventually(lambda: (b"2", ("c",)) in seen, "children are told")
        store.commit([Delete("/w/c"), Delete("/w")])
        eventually(lambda: seen[-1] == (None, ()), "deletion is told")
        store.commit([Create("/w", b"3")])
        eventually(lambda: seen[-1] == (b"3", ()), "a new life is told")
        watch.stop()

    def test_a_failing_listener_does_not_silence_others(self, store: MetadataStore) -> None:
        notified = threading.Event()

        def fail() -> None:
            raise ValueError("a listener's bug")

        store.watch("/f", fail)
        store.watch("/f", lambda: notified.set() if store.get("/f") else None)
        store.commit([Create("/f", b"")])
        assert notified.wait(WAIT_S)

    def test_ephemerals_go_with_the_session(self, store: MetadataStore, sessions: Sessions) -> None:
        other = sessions.open()
        other.commit([Create("/live/a", b"", ephemeral=True)])
        assert store.children("/live") == ("a",)
        other.close()
        eventually(lambda: store.children("/live") == (), "the ephemeral is gone")
        with pytest.raises(SessionLost):
            other.get("/live")

    def test_a_node_says_whether_it_goes_with_its_session(self, store: MetadataStore) -> None:
        store.commit([Create("/live/a", b"1", ephemeral=True), Create("/kept", b"1")])
        found = {path: store.get(path) for path in ("/live/a", "/live", "/kept")}
        assert [node is not None and node.ephemeral for node in found.values()] == [True, False, False]

    def test_a_node_has_another_stamp_after_each_change_of_its_children(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"1")])
        seen = set()

        def stamp() -> int:
            node = store.get("/a")
            assert node is not None
            return node.children_stamp

        changes: list[list[Operation]] = [
            [Create("/a/b", b"1")],
            [Delete("/a/b")],
            [Create("/a/b", b"1"), Create("/a/c", b"1", ephemeral=True)],
            [Delete("/a/b"), Create("/a/d", b"1")],
        ]
        for change in changes:
            seen.add(stamp())
            store.commit(change)
        seen.add(stamp())
        assert len(seen) == len(changes) + 1
        store.commit([Put("/a", b"2", 0), Put("/a/d", b"2", 0)])
        assert stamp() in seen, "data is no child"

    def test_a_lost_session_is_replaced_and_told(self, store: MetadataStore, sessions: Sessions) -> None:
        lost, seen = threading.Event(), threading.Event()
        store.commit([Create("/live/a", b"", ephemeral=True)])
        store.on_session_lost(lost.set)
        other = sessions.open()
        sessions.expire(store)
        assert lost.wait(WAIT_S)
        eventually(lambda: store.connected(), "a new session")
        assert store.get("/live/a") is None
        store.commit([Create("/live/a", b"again", ephemeral=True)])
        store.watch("/later", lambda: seen.set() if store.get("/later") else None)
        other.commit([Create("/later", b"")])
        assert seen.wait(WAIT_S)

    def test_watches_survive_a_lost_session(self, store: MetadataStore, sessions: Sessions) -> None:
        other = sessions.open()
        seen: list[bytes | None] = []

        def look() -> None:
            node = store.get("/w")
            seen.append(None if node is None else node.data)

        store.watch("/w", look)
        other.commit([Create("/w", b"1")])
        eventually(lambda: b"1" in seen, "before the loss")
        sessions.expire(store)
        eventually(store.connected, "a new session")
        node = other.get("/w")
        assert node is not None
        other.commit([Put("/w", b"2", node.version)])
        eventually(lambda: seen[-1] == b"2", "after the loss")

    def test_one_candidate_leads_and_the_next_follows(self, store: MetadataStore, sessions: Sessions) -> None:
        other = sessions.open()
        first = store.elect("/e", "one", lambda: None)
        eventually(first.is_leader, "the only candidate leads")
        second = other.elect("/e", "two", lambda: None)
        eventually(lambda: second.leader() == "one", "the second knows the leader")
        assert not second.is_leader()
        assert identities(store, "/e") == ("one", "two")
        fence = first.fence()
        assert fence is not None
        other.commit([Check(fence, -1)])
        assert second.fence() is None
        first.close()
        eventually(second.is_leader, "the second leads")
        assert not first.is_leader()
        assert first.fence() is None
        with pytest.raises(CommitConflict):
            other.commit([Check(fence, -1)])
        second.close()
        eventually(lambda: store.children("/e") == (), "nobody stands")

    def test_a_leader_that_steps_back_stands_behind_all_others(
        self, store: MetadataStore, sessions: Sessions
    ) -> None:
        first = store.elect("/e", "one", lambda: None)
        eventually(first.is_leader, "the only candidate leads")
        assert not first.step_back(), "nobody else stands"
        assert first.is_leader()
        fence, term = first.fence(), first.term()
        second = sessions.open().elect("/e", "two", lambda: None)
        eventually(lambda: second.leader() == "one", "the second stands")
        assert first.step_back()
        assert not first.is_leader()
        eventually(second.is_leader, "the second leads")
        eventually(lambda: identities(store, "/e") == ("two", "one"), "the first stands again, behind")
        assert fence is not None
        with pytest.raises(CommitConflict):
            store.commit([Check(fence, -1)])
        second_term = second.term()
        assert second.step_back()
        eventually(first.is_leader, "the first leads again")
        assert term is not None
        assert second_term is not None
        assert term < second_term < (first.term() or 0), "terms grow"

    def test_leadership_ends_with_the_session_and_the_candidate_enrols_again(
        self, store: MetadataStore, sessions: Sessions
    ) -> None:
        other = sessions.open()
        notified: list[bool] = []
        first = store.elect("/e", "one", lambda: notified.append(first.is_leader()))
        eventually(first.is_leader, "the first leads")
        second = other.elect("/e", "two", lambda: None)
        eventually(lambda: second.leader() == "one", "the second knows the leader")
        sessions.expire(store)
        eventually(second.is_leader, "the second leads")
        eventually(lambda: first.leader() == "two", "the first stands again, behind")
        assert not first.is_leader()
        eventually(lambda: notified[0] is True and notified[-1] is False, "the first was told both")
