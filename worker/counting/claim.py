"""Decides the offset at which counting of a partition continues.

**Before the epoch is raised** (`Claim.decide`). Counts of another lineage and a head of another deployment stop the
stream. Otherwise the first matching row applies. CLAIMED and COUNTED are the metadata of the group's offset in Kafka.

=========  =============================  ================================  ======================================
Redis      group's offset                 head                              counting continues at
=========  =============================  ================================  ======================================
offset o   COUNTED up to k                any                               max(o, k), COUNTED
offset o   none, or CLAIMED               any                               o, which is COUNTED if a commit exists
no counts  COUNTED up to k                any                               counts are lost
no counts  none (k = 0), or CLAIMED at k  has counts beyond k               counts are lost
no counts  none                           lists the partition as uncounted  0, CLAIMED
no counts  CLAIMED at k                   no counts beyond k                k, CLAIMED
no counts  none                           does not name the partition       the log's first offset, CLAIMED
=========  =============================  ================================  ======================================

If counts are lost, the stream stops, unless the operator gave them up (``recount_after``). In that case, counting
restarts at the offset of the first published rule, or at 0. Offsets that the log no longer has become a gap.

**After the epoch is raised** (`Claim.resume`). The first matching row applies. o is the state's offset. k is the
highest offset up to which the group or the head has records as counted.

=====================  ================================  ==============================================
log                    counted before                    action
=====================  ================================  ==============================================
ends before o or k     any                               the counts are lost: stop the stream
begins at o or before  any                               continue at o
begins after o         k ≤ o                             record a gap up to the log's first offset
begins after o         the head has this gap             record the same gap
begins after o         k > o                             the counts are lost; if given up, record a gap
=====================  ================================  ==============================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ldp
from worker.counting import bounds, layout, ports, rules
from worker.counting.changed import NEW_NAME, changes, remedy
from worker.counting.documents import Document, of_fleet, opened, unnamed
from worker.counting.head import Head, others_of
from worker.counting.lineage import differing
from worker.counting.partition_state import PartitionState
from worker.counting.ports import CLAIMED, COUNTED, Metadata, NewerState, StateLost, StoredPartition
from worker.counting.rules import Older, RequestedRule, Rule


def lost(fleet: ldp.Fleet, partition: int, why: str, more: str = "") -> StateLost:
    """Returns the error for lost counts of a partition."""
    return StateLost(
        f"stream {fleet.name!r}, partition {partition}: {why}. Continuing would lose or mix counts.",
        f"undo any change of the configuration, restore Redis, or {NEW_NAME}{more}",
    )


def demand_ours(fleet: ldp.Fleet, partition: int, metadata: Metadata, lineage: str) -> None:
    """Raises StateLost for counts of another lineage or of other documents."""
    try:
        recorded = layout.documents(metadata)
    except StateLost as error:
        raise unreadable(fleet, partition, error) from None
    if others := [*differing(metadata.lineage, lineage), *unnamed(recorded, fleet)]:
        what = "; ".join([*changes(fleet, recorded), *others])
        raise StateLost(
            f"stream {fleet.name!r}, partition {partition}: Redis has counts of another history: {what}."
            " Continuing would mix counts.",
            remedy(fleet, recorded),
        )


def foreign(fleet: ldp.Fleet, head: Head, differing: Sequence[str]) -> StateLost:
    """Returns the error for a head that another deployment published."""
    what, hint = others_of(fleet, head, differing)
    return StateLost(
        f"stream {fleet.name!r}: snapshot {head.sequence} on the snapshot topic belongs to other counts: {what}."
        " Two deployments would publish under one name.",
        hint,
    )


def unreadable(fleet: ldp.Fleet, partition: int, error: StateLost) -> StateLost:
    """Returns the error for stored counts that cannot be read."""
    if isinstance(error, NewerState):
        return NewerState(f"stream {fleet.name!r}, partition {partition}: {error}")
    return lost(fleet, partition, str(error))


def _counts_gap(partition: int, state: PartitionState, head: Head) -> bool:
    """Returns whether the head counts records in a gap of the state."""
    reached, theirs = head.offsets.get(partition, 0), head.gaps.get(partition, [])
    return any(gap[1] <= reached and gap not in theirs for gap in state.gaps)


def peek(fleet: ldp.Fleet, store: ports.StateReader | ports.Store, partition: int) -> Metadata | None:
    """Returns a partition's metadata, or None; raises StateLost."""
    try:
        return store.peek(partition)
    except StateLost as error:
        raise unreadable(fleet, partition, error) from None


@dataclass(frozen=True)
class Claim:
    """Decisions for one round of claims; `Ownership` explains `recount_after`."""

    group: str
    fleet: ldp.Fleet
    configured: RequestedRule
    recount_after: int | None
    head_reader: ports.HeadReader
    events: ports.Events
    lineage: str

    def doubtful(self, partition: int, metadata: Metadata | None, head: Head) -> bool:
        """Returns whether the head may contradict the metadata."""
        if metadata is None or head.foreign(self.fleet, self.lineage):
            return True
        return head.offsets.get(partition, 0) > metadata.offset

    def certain(self, metadata: Metadata | None, committed: tuple[int, str] | None) -> bool:
        """Returns whether a partition can be claimed without reading the head."""
        if metadata is None or not metadata.commit_id or metadata.offset < (committed or (0, ""))[0]:
            return False
        documents = {name: opened(sealed) for name, sealed in layout.documents(metadata).items()}
        rule, _ = self._next(layout.recorded(metadata), documents, metadata.offset, Head())
        return rule is None

    def decide(
        self,
        partition: int,
        metadata: Metadata | None,
        committed: tuple[int, str] | None,
        first: int,
        head: Head,
    ) -> tuple[int, str]:
        """Returns (start offset, Kafka metadata) by the module's first table."""
        counted = committed is not None and committed[1] != CLAIMED
        if metadata is not None:
            demand_ours(self.fleet, partition, metadata, self.lineage)
        self._demand_ours(head)
        if metadata is not None:
            if committed is not None and counted:
                # never lowered, so that a claim notices a store that was rolled back
                return max(metadata.offset, committed[0]), COUNTED
            return metadata.offset, COUNTED if metadata.commit_id else CLAIMED
        why = None
        if committed is not None and counted:
            why = (
                f"Redis has no counts, but group {self.group!r} has offset {committed[0]} committed in Kafka"
                f" ({committed[1] or 'by another program'!r})"
            )
        elif (published := head.offsets.get(partition, 0)) > (0 if committed is None else committed[0]):
            why = f"Redis has no counts, but snapshot {head.sequence} has counts up to offset {published}"
        if why is not None:
            self._give_up(partition, why, head)
            return next((rule.offset for rule in head.rules_of(partition)), 0), CLAIMED
        if committed is None and partition in head.uncounted:
            return 0, CLAIMED  # records deleted since then become a gap
        return (first if committed is None else committed[0]), CLAIMED

    def initial(self, partition: int, start: int, head: Head) -> Metadata:
        """Returns the metadata to store for a partition that has none."""
        names = self.configured.names(self.fleet).joined(head.names)
        known = self._documents(head)
        if _excess([rule := rules.first(self.configured, start, names)], known) and head.documents:
            rule = rules.first(self.configured, start, head.names)
        # published rules take precedence
        fresh = PartitionState.ruled(start, head.rules_of(partition) or [rule], known)
        return layout.initial(self.lineage, fresh)

    def load(self, partition: int, stored: StoredPartition) -> PartitionState:
        """Decodes a claimed partition's state, or raises StateLost."""
        try:
            return layout.load(self.fleet, stored.metadata, stored.blobs)
        except StateLost as error:
            raise unreadable(self.fleet, partition, error) from None

    def resume(
        self,
        partition: int,
        state: PartitionState,
        stored: Metadata,
        known: int,
        bounds: tuple[int, int],
        head: Head | None,
    ) -> bool:
        """Applies the module's second table to a state; True if that adds a gap.

        ``known`` is the COUNTED offset in Kafka, or 0. ``bounds`` are the log's first offset and end, read after the
        epoch was raised. ``head`` was read earlier. Raises StateLost, or Unavailable if a required head is unreadable.
        """
        (first, end), published = bounds, 0 if head is None else head.offsets.get(partition, 0)
        if (most := max(state.offset, known, published)) > end:
            why = f"the counts reach offset {most}, but the log ends at {end}: it was truncated or created again"
            raise lost(self.fleet, partition, why)
        if gap := state.offset < first:
            head = self._decided_head()
            again = (state.offset, first) in head.gaps.get(partition, [])
            if (counted := max(known, head.offsets.get(partition, 0))) > state.offset and not again:
                why = (
                    f"the counts reach offset {state.offset}, but snapshot {head.sequence} or the group's offset has"
                    f" them up to {counted}, and the log begins at {first}: Redis was rolled back too far to count the"
                    " records again"
                )
                self._give_up(partition, why, head)
            self.events.gap_found(partition, state.offset, first)
            state.skip(first)
        if head is None:
            return gap
        self._follow(partition, state, head, stored, known)
        if state.windows.admitted_from is not None and partition not in head.floors:
            head = self._decided_head()
            if partition not in head.floors:
                why = f"snapshot {head.sequence} does not name it, but an earlier one did: heads were deleted"
                self._give_up(partition, why, head)
                state.windows.withdraw_admission(state.offset)
        return gap

    def may_recount(self, partition: int, state: PartitionState, head: Head) -> bool:
        """Returns whether gaps may need a recount; always False with windows."""
        windows = any(rule.limits.windowing is not None for rule in state.rules)
        wanted = self.recount_after is not None or _counts_gap(partition, state, head)
        return bool(state.gaps) and wanted and not windows

    def recount(self, partition: int, state: PartitionState) -> PartitionState | None:
        """Returns an empty state if gaps require a recount, or None."""
        head = self._decided_head()
        wanted = self.recount_after is not None and head.sequence <= self.recount_after
        wanted = wanted or _counts_gap(partition, state, head)
        if not (wanted and self.may_recount(partition, state, head)):
            return None
        return PartitionState.ruled(state.start, state.rules, state.documents)

    def _decided_head(self) -> Head:
        """Returns the newest committed head; raises StateLost if it is foreign."""
        head = self.head_reader.head(decided=True)
        self._demand_ours(head)
        return head

    def _demand_ours(self, head: Head) -> None:
        if others := head.foreign(self.fleet, self.lineage):
            raise foreign(self.fleet, head, others)

    def _give_up(self, partition: int, why: str, head: Head) -> None:
        """Raises StateLost unless `recount_after` covers the newest snapshot."""
        if self.recount_after is None or head.sequence > self.recount_after:
            more = (
                f". To continue without them, set recount_after = {head.sequence} for the stream: the worker recounts"
                " the records that the topic still has, and records the rest as a gap"
            )
            raise lost(self.fleet, partition, why, more)
        self.events.warning("partition.given_up", partition=partition, why=why)

    def _follow(
        self, partition: int, state: PartitionState, head: Head, stored: Metadata, known: int
    ) -> None:
        """Adopts the head's rules, and appends the configured rule if it is new."""
        new, _ = self._next(state.rules, state.documents, state.offset, head)
        behind = state.offset < head.offsets.get(partition, 0)
        if new or behind or not rules.continues(state.rules, head.rules_of(partition)):
            head = self._decided_head()  # other owners can no longer commit
        published = head.rules_of(partition)
        # a rule that begins below the stored offset cannot be adopted: records were counted without it
        late = any(rule.offset < stored.offset for rule in published[len(state.rules) :])
        if published and (not stored.commit_id or (rules.continues(published, state.rules) and not late)):
            state.set_rules(published, self._documents(head))
        elif not rules.continues(state.rules, published):
            theirs, ours = ([rule.as_json() for rule in listed] for listed in (published, state.rules))
            why = f"snapshot {head.sequence} has counts by the rules {theirs}, Redis by {ours}"
            raise lost(self.fleet, partition, why)
        # a cut up to this offset may be published soon
        since = max(state.offset, head.offsets.get(partition, 0), known)
        rule, older = self._next(state.rules, state.documents, since, head)
        if older is not None and older.refused:
            where = f"stream {self.fleet.name!r}, partition {partition}"
            raise StateLost(f"{where}: {older.why}. Smaller increments would be published.", older.hint)
        if rule is not None:
            self._emit_added(partition, rule, state.rules[-1])
            state.set_rules([*state.rules, rule], self._documents(head))
        if not stored.commit_id:
            state.begin_cells()
        if older is not None:
            self.events.warning("config.outdated", partition=partition, why=older.why, remedy=older.hint)

    def _documents(self, head: Head) -> dict[str, Document]:
        """Returns the configured and the published documents."""
        return {name: opened(sealed) for name, sealed in head.documents.items()} | of_fleet(self.fleet)

    def _next(
        self, listed: Sequence[Rule], documents: Mapping[str, Document], offset: int, head: Head
    ) -> tuple[Rule | None, Older | None]:
        """Returns the rule to append to recorded ones, and what it ignores.

        The rule joins the names of the configuration and of all partitions in the head.
        """
        configured, known = self.configured.names(self.fleet), {**documents, **self._documents(head)}
        decided = rules.decide(listed, self.configured, offset)
        limits = decided if isinstance(decided, Rule) else None
        rule = rules.joining(listed, limits, configured.joined(head.names), offset)
        if rule is not None and (why := _excess([*listed, rule], known)):
            rule = rules.joining(listed, None, head.names, offset)
            rule = None if rule is None or _excess([*listed, rule], known) else rule
            return rule, Older(f"with the recorded names, the configuration has {why}", _SMALLER)
        if isinstance(decided, Older):
            return rule, decided
        return rule, rules.outdated(rules.joined([*listed, *filter(None, [rule])]), configured)

    def _emit_added(self, partition: int, rule: Rule, last: Rule) -> None:
        if rule.revision != last.revision or rule.segments:
            self.events.info("rules.added", partition=partition, **rule.as_json())
        for name, status in rule.documents.items():
            if status.retired:
                self.events.info(
                    "document.retired", partition=partition, offset=rule.offset, fingerprint=name
                )
            else:
                self.events.info("document.added", partition=partition, offset=rule.offset, fingerprint=name)


_SMALLER = (
    "the recorded names stay in force; remove the new names from the configuration, or use a new stream"
)


def _excess(listed: Sequence[Rule], documents: Mapping[str, Document]) -> str | None:
    """Returns the bound that a partition with these rules exceeds, or None."""
    names = rules.joined(listed)
    named = [documents[name] for name in names.documents]
    return bounds.excess(named, names.segments, listed[-1].limits.windowing)
