"""The keys of a table.

Written from the Go structs that define them, of replay/options.go, replay/sources.go, wire/table.go and
replay/prompts/options.go, by
`go test ./cmd/reprise -run Reference -write-reference`: change those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from ._options import Options, given
from .methods import method_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Made = TypeVar("Made", covariant=True)

Retention = Literal["fifo", "positive", "scored"]
SelectBy = Literal["variance", "reward"]
Sampler = Literal["lifo", "fifo", "uniform", "distinct", "epoch", "unseen", "least_used", "ordered", "prioritized"]
Unit = Literal["rollout", "step", "group"]
Base = Literal["advantage", "reward", "td_error", "gradient_norm", "recency", "expression"]
Decay = Literal["before_exponent", "after_exponent"]
Draws = Literal["stratified", "independent"]
Entry = Literal["own", "max"]
Until = Literal["replay", "refresh", "report"]
Norm = Literal["batch", "table"]
Advantage = Literal["group", "no_std", "leave_one_out", "log_mean_exp", "batch", "group_batch", "gae"]
DrawAdvantage = Literal["stored", "regroup", "split", "baseline"]
Pool = Literal["table", "fresh", "reserved", "prompts"]


@dataclass(frozen=True)
class Limiter(Options):
    """Holds the draws per inserted rollout near a ratio: the side that runs ahead waits.

    Attributes:
        samples_per_insert: draws per rollout; above 0
        error_buffer: draws that either side may run ahead, at least those of one batch or insertion; above 0
    """

    samples_per_insert: float
    error_buffer: float


@dataclass(frozen=True)
class Gate(Options):
    """Limits how many groups generators start, so that rollouts are not too stale when they are used (`Table.start`).

    Attributes:
        rollouts_per_update: new rollouts that one update takes: batch / replay ratio; above 0
        max_staleness: of the rollouts started, in versions
        grant_seconds: until a grant that was not used goes back, and others may start its groups; 0 to 31622400
            [600]
    """

    rollouts_per_update: float
    max_staleness: int
    grant_seconds: float | None = None


@dataclass(frozen=True)
class Prompts(Options):
    """Prompt replay for the table (`Table.prompts_next`).

    Attributes:
        fraction: f, share of a batch's prompts that may come from the buffer; a run begins with 0; 0 to 1 [0.75]
        band: hold prompts with a pass rate p in (0, 1) and |p - 1/2| <= band; 0: those at one half; 0 to 0.5 [0.3]
        cooldown: versions from one use of a prompt to the next, at least [5]
        max_reuse: replay a prompt at most this many times; 1 or more [10]
        max_prompts: how many prompts to remember; the one reported longest ago leaves first; 1 or more [1048576]
        keep: hold prompts of which this is true, such as pass_rate < 1, in the place of the band [by band]
        score: replay those with the highest number first, such as pass_rate * (1 - pass_rate), in the place of
            those near one half [nearest to one half]
        interval: versions from one use of a prompt to the next, such as pass_rate == 1 ? 50 : 5, in the place of
            cooldown [cooldown]
        skip: probability with which a fresh prompt is passed over, such as 1 - 0.5 ** streak; 0 for one that is not
            known [none is passed over]
    """

    fraction: float | None = None
    band: float | None = None
    cooldown: int | None = None
    max_reuse: int | None = None
    max_prompts: int | None = None
    keep: str | None = None
    score: str | None = None
    interval: str | None = None
    skip: str | None = None


@dataclass(frozen=True)
class Source(Options):
    """A part of each batch, drawn before the sampler draws the rest.

    Attributes:
        name: what backfill and errors call it; none twice
        pool: what it draws from: table, fresh, reserved or prompts [table]
        share: of each batch, rounded to whole draws: a number, or an expression over version, such as 0.5 - version
            / 400, of which what is below 0 counts as 0 and what is above 1 as 1 [count decides]
        count: rollouts of each batch, instead of a share [share decides]
        where: a condition that its rollouts meet, such as reward >= 1 && age < 8; of unit group, all rollouts of
            the group [all]
        weight: a number, such as abs(advantage): draws are in proportion to it, and never fall on what has none
            above 0; of unit group, the mean over the group [all alike]
        order: of pool prompts, a number: of each prompt those with the greatest come first, such as -age [at
            random]
        per_prompt: rollouts of one prompt that it gives a batch at most [no limit]
        fresh_where: of pool prompts, a condition that all fresh rollouts of a prompt in the batch meet, or it draws
            none of the prompt: group_mean == 0 for groups that failed [all]
        replace: of pool prompts, have each draw take the place of a fresh rollout of its prompt, the oldest first,
            which is passed over; such a source has no places of its own, and stands behind the fresh ones [off]
        wait: have the batch wait until it holds enough; of pool fresh, those that fail the condition count too
            [off]
        backfill: the source after it that draws in the places that it leaves free [the sampler]
    """

    name: str
    pool: Pool | None = None
    share: float | str | None = None
    count: int | None = None
    where: str | None = None
    weight: str | None = None
    order: str | None = None
    per_prompt: int | None = None
    fresh_where: str | None = None
    replace: bool | None = None
    wait: bool | None = None
    backfill: str | None = None


@dataclass(frozen=True)
class Definition(Options):
    """The keys of a table; `Client.create` says what they mean. None means the service's default. `Table.info` returns
    them with defaults filled in.
    """

    capacity: int | None = None
    capacity_bytes: int | None = None
    retention: Retention | None = None
    score: str | None = None
    kept_per_prompt: int | None = None
    positive_fraction: float | None = None
    positive_threshold: float | None = None
    positives_per_prompt: int | None = None
    positive_share: float | None = None
    select: int | None = None
    select_by: SelectBy | None = None
    max_staleness: int | None = None
    pin: str | None = None
    max_uses: int | None = None
    sources: Sequence[Source] | None = None
    sampler: Sampler | None = None
    order: str | None = None
    cooldown: int | None = None
    prompt_index: bool | None = None
    min_size: int | None = None
    unit: Unit | None = None
    group_size: int | None = None
    step_returns: int | None = None
    step_discount: float | None = None
    priority_base: Base | None = None
    priority: str | None = None
    priority_epsilon: float | None = None
    priority_exponent: float | None = None
    age_decay: float | None = None
    decay: Decay | None = None
    target_ess: float | None = None
    draws: Draws | None = None
    entry: Entry | None = None
    entry_until: Until | None = None
    importance_beta: float | None = None
    importance_anneal: int | None = None
    importance_norm: Norm | None = None
    shards: int | None = None
    advantage: Advantage | None = None
    draw_advantage: DrawAdvantage | None = None
    vocab: int | None = None
    max_tokens: int | None = None
    unknown_logprobs: bool | None = None
    pending_rewards: float | None = None
    seed: int | None = None
    history: int | None = None
    lease_seconds: float | None = None
    limiter: Limiter | None = None
    gate: Gate | None = None
    prompts: Prompts | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


class Keys(TypedDict, total=False):
    """The keys of a table as keyword arguments."""

    capacity: int
    """Rollouts kept, over all shards; a multiple of shards; 1 or more [4096]."""
    capacity_bytes: int
    """Payload bytes, all shards; of a service see docs/service.md, Sizing [no limit]."""
    retention: Retention
    """What is kept when the table is full: fifo, positive or scored [fifo]."""
    score: str
    """Of retention scored: a number such as version - 2 * uses; the rollout of the least leaves first, and the oldest
    among equals, the newcomer included; what is not known leaves before all; of unit group, the mean over the group."""
    kept_per_prompt: int
    """Rollouts of one prompt that a shard keeps, with retention fifo or scored, by which the others leave; not with
    unit group or a queue [no limit]."""
    positive_fraction: float
    """Share of the capacity reserved for correct rollouts, with retention positive; at least 0, below 1 [0]."""
    positive_threshold: float
    """Least reward of a correct rollout [1]."""
    positives_per_prompt: int
    """Correct rollouts of one prompt that a shard's reserved part holds, the oldest leaving first [no limit]."""
    positive_share: float
    """Share of each batch drawn from the reserved part, as far as it goes, each rollout once; the sampler draws the
    others from the whole table; not with sampler prioritized; 0 to 1 [0]."""
    select: int
    """Rollouts of each group that enter, the others counted as evicted by selection; advantages are those among them;
    only with unit rollout [all]."""
    select_by: SelectBy
    """Which of a group enter: the subset whose rewards have the largest variance (PODS), or the largest rewards:
    variance or reward [variance]."""
    max_staleness: int
    """Evict rollouts older than this many versions [no limit]."""
    pin: str
    """A condition such as reward >= 1: what meets it as it is inserted stays however old, of unit group where all meet
    it; not over age, uses or since_use, and not with a queue."""
    max_uses: int
    """Evict a rollout after this many uses; a queue always gives each once [no limit]."""
    sources: Sequence[Source]
    """Parts of each batch, drawn one after another before the sampler draws the rest."""
    sampler: Sampler
    """What is drawn: lifo, fifo, uniform, distinct, epoch, unseen, least_used, ordered or prioritized [distinct]."""
    order: str
    """Of sampler ordered: a number such as version - 2 * uses, the largest of which is drawn first, and the oldest
    among equals; what is not known comes last; of unit group, the mean over the group [version]."""
    cooldown: int
    """Of sampler ordered: versions from a rollout's last use to the next one that the sampler draws; what is on lease
    waits too [no rest]."""
    prompt_index: bool
    """Keep an index of rollouts by prompt, for draws by prompt, in at most 16 bytes a rollout; not with unit group or a
    queue [off]."""
    min_size: int
    """Rollouts a shard must hold before it is sampled [what the batch needs; 1 with replacement]."""
    unit: Unit
    """What a draw falls on: rollout, step or group [rollout]."""
    group_size: int
    """Rollouts in every group; insertions with other groups are refused; unit group needs it [groups may differ]."""
    step_returns: int
    """N, with unit step: a step's reward becomes its n-step return, the sum over k < n of step_discount^k times the
    reward of the k-th turn from it, to the end of the episode if n is -1; advantages are then taken over the returns of
    all steps of the group; a rollout without turns counts with its reward; 0: a step has its turn's own reward; -1 or
    more [0]."""
    step_discount: float
    """Gamma per turn of step_returns; above 0, at most 1 [1]."""
    priority_base: Base
    """What a rollout's priority is made of: advantage, reward, td_error, gradient_norm, recency or expression
    [advantage]."""
    priority: str
    """Base of a rollout, a number such as abs(advantage) * group_std; what is below 0 or not known counts as 0; of unit
    group, the mean over the group [priority_base]."""
    priority_epsilon: float
    """Added to every base; above 0 [1e-06]."""
    priority_exponent: float
    """Alpha; above 0, at most 100 [0.6]."""
    age_decay: float
    """Tau in versions; inf: no decay, standard PER; 0.001 or more, or inf [500]."""
    decay: Decay
    """When a priority decays: before_exponent or after_exponent [before_exponent]."""
    target_ess: float
    """Age_decay follows the measured ESS to hold a batch's ESS/n at this; at least 0, below 1 [age_decay is fixed]."""
    draws: Draws
    """How the draws of a batch are spread over the total of the weights: stratified or independent [stratified]."""
    entry: Entry
    """Base of new rollouts: their own, or the largest known: own or max [own]."""
    entry_until: Until
    """What ends an entry at the maximum: replay, refresh or report [replay]."""
    importance_beta: float
    """Of the weights (N P)^-beta; 0: all weights are 1; 0 to 1 [0.4]."""
    importance_anneal: int
    """Versions over which importance_beta rises to 1; 0: it stays; of a run those of its budget [0]."""
    importance_norm: Norm
    """Divide weights by the largest of the batch or the table, of all trainers together: batch or table [batch]."""
    shards: int
    """Shares of the table, each sampled by its own trainer; 1 to 65536 [1]."""
    advantage: Advantage
    """How advantages are taken at insertion: group, no_std, leave_one_out, log_mean_exp, batch, group_batch or gae
    [group]."""
    draw_advantage: DrawAdvantage
    """What advantages of draws compare a reward with: the group at insertion, the draws of its prompt in the batch,
    with split of these the fresh or the replayed ones as it is, or the rollouts of its prompt that the shard holds; all
    but the first need a group-relative advantage: stored, regroup, split or baseline [stored]."""
    vocab: int
    """Token ids are below [not checked]."""
    max_tokens: int
    """Of one rollout, prompt included [no limit]."""
    unknown_logprobs: bool
    """Take rollouts whose log-probs are NaN, not known, such as those of experts, chat logs and other offline data;
    losses that read log-probs refuse them [off]."""
    pending_rewards: float
    """Take rollouts whose reward is NaN, not known yet: a group is not drawn until it has the rewards of all of its
    rollouts (Reward), and leaves if it has not after this many seconds; not with unit step, select and kept_per_prompt;
    0 to 31622400 [off]."""
    seed: int
    """Of every draw [0]."""
    history: int
    """Rollouts whose life the table remembers, those to which something happened last, in up to 1.5 KB each: when, at
    which version and by whom they were inserted, drawn, reported on and evicted; not saved; 0 to 16777216 [off]."""
    lease_seconds: float
    """Until an unacknowledged batch goes back; 0.001 to 31622400 [60]."""
    limiter: Limiter
    """Samples per insert."""
    gate: Gate
    """Staleness gate for generators."""
    prompts: Prompts
    """Prompt replay."""
    columns: Mapping[str, str]
    """Columns of your own, carried untouched: names that begin with x_, and types such as float32 or list<int64>."""
    max_size: int
    """Another name for capacity."""


class Creator(Generic[Made]):
    """What creates tables."""

    def create(
        self,
        name: str,
        definition: Definition | None = None,
        *,
        method: str | None = None,
        parts: int | None = None,
        **keys: Unpack[Keys],
    ) -> Made:
        """Create a table, or return the existing one if its definition is the same.

        On several addresses it is a table in parts, one on each service, of which the keys are those of the table: each
        part gets its share of capacity, capacity_bytes, min_size, the gate's rollouts_per_update and the limiter's
        error_buffer, rounded up to what a part must have. Parts on services that are away are created when these come
        back.

        Args:
            name: letters, digits, ``-``, ``_`` and ``.``, at most 128.
            definition: the keys as one; otherwise they are keyword arguments.
            method: a published one, of `reprise.METHODS`, whose keys are those that are not given.
            parts: of a table in parts on a cluster, by default one for each address given.
            capacity: rollouts kept, over all shards; a multiple of shards; 1 or more [4096]
            capacity_bytes: payload bytes, all shards; of a service see docs/service.md, Sizing [no limit]
            retention: what is kept when the table is full: fifo, positive or scored [fifo]
            score: of retention scored: a number such as version - 2 * uses; the rollout of the least leaves first,
                and the oldest among equals, the newcomer included; what is not known leaves before all; of unit group,
                the mean over the group
            kept_per_prompt: rollouts of one prompt that a shard keeps, with retention fifo or scored, by which the
                others leave; not with unit group or a queue [no limit]
            positive_fraction: share of the capacity reserved for correct rollouts, with retention positive; at
                least 0, below 1 [0]
            positive_threshold: least reward of a correct rollout [1]
            positives_per_prompt: correct rollouts of one prompt that a shard's reserved part holds, the oldest
                leaving first [no limit]
            positive_share: share of each batch drawn from the reserved part, as far as it goes, each rollout once;
                the sampler draws the others from the whole table; not with sampler prioritized; 0 to 1 [0]
            select: rollouts of each group that enter, the others counted as evicted by selection; advantages are
                those among them; only with unit rollout [all]
            select_by: which of a group enter: the subset whose rewards have the largest variance (PODS), or the
                largest rewards: variance or reward [variance]
            max_staleness: evict rollouts older than this many versions [no limit]
            pin: a condition such as reward >= 1: what meets it as it is inserted stays however old, of unit group
                where all meet it; not over age, uses or since_use, and not with a queue
            max_uses: evict a rollout after this many uses; a queue always gives each once [no limit]
            sources: parts of each batch, drawn one after another before the sampler draws the rest
            sampler: what is drawn: lifo, fifo, uniform, distinct, epoch, unseen, least_used, ordered or prioritized
                [distinct]
            order: of sampler ordered: a number such as version - 2 * uses, the largest of which is drawn first, and
                the oldest among equals; what is not known comes last; of unit group, the mean over the group [version]
            cooldown: of sampler ordered: versions from a rollout's last use to the next one that the sampler draws;
                what is on lease waits too [no rest]
            prompt_index: keep an index of rollouts by prompt, for draws by prompt, in at most 16 bytes a rollout;
                not with unit group or a queue [off]
            min_size: rollouts a shard must hold before it is sampled [what the batch needs; 1 with replacement]
            unit: what a draw falls on: rollout, step or group [rollout]
            group_size: rollouts in every group; insertions with other groups are refused; unit group needs it
                [groups may differ]
            step_returns: n, with unit step: a step's reward becomes its n-step return, the sum over k < n of
                step_discount^k times the reward of the k-th turn from it, to the end of the episode if n is -1;
                advantages are then taken over the returns of all steps of the group; a rollout without turns counts
                with its reward; 0: a step has its turn's own reward; -1 or more [0]
            step_discount: gamma per turn of step_returns; above 0, at most 1 [1]
            priority_base: what a rollout's priority is made of: advantage, reward, td_error, gradient_norm, recency
                or expression [advantage]
            priority: base of a rollout, a number such as abs(advantage) * group_std; what is below 0 or not known
                counts as 0; of unit group, the mean over the group [priority_base]
            priority_epsilon: added to every base; above 0 [1e-06]
            priority_exponent: alpha; above 0, at most 100 [0.6]
            age_decay: tau in versions; inf: no decay, standard PER; 0.001 or more, or inf [500]
            decay: when a priority decays: before_exponent or after_exponent [before_exponent]
            target_ess: age_decay follows the measured ESS to hold a batch's ESS/n at this; at least 0, below 1
                [age_decay is fixed]
            draws: how the draws of a batch are spread over the total of the weights: stratified or independent
                [stratified]
            entry: base of new rollouts: their own, or the largest known: own or max [own]
            entry_until: what ends an entry at the maximum: replay, refresh or report [replay]
            importance_beta: of the weights (N P)^-beta; 0: all weights are 1; 0 to 1 [0.4]
            importance_anneal: versions over which importance_beta rises to 1; 0: it stays; of a run those of its
                budget [0]
            importance_norm: divide weights by the largest of the batch or the table, of all trainers together:
                batch or table [batch]
            shards: shares of the table, each sampled by its own trainer; 1 to 65536 [1]
            advantage: how advantages are taken at insertion: group, no_std, leave_one_out, log_mean_exp, batch,
                group_batch or gae [group]
            draw_advantage: what advantages of draws compare a reward with: the group at insertion, the draws of its
                prompt in the batch, with split of these the fresh or the replayed ones as it is, or the rollouts of its
                prompt that the shard holds; all but the first need a group-relative advantage: stored, regroup, split
                or baseline [stored]
            vocab: token ids are below [not checked]
            max_tokens: of one rollout, prompt included [no limit]
            unknown_logprobs: take rollouts whose log-probs are NaN, not known, such as those of experts, chat logs
                and other offline data; losses that read log-probs refuse them [off]
            pending_rewards: take rollouts whose reward is NaN, not known yet: a group is not drawn until it has the
                rewards of all of its rollouts (Reward), and leaves if it has not after this many seconds; not with unit
                step, select and kept_per_prompt; 0 to 31622400 [off]
            seed: of every draw [0]
            history: rollouts whose life the table remembers, those to which something happened last, in up to 1.5
                KB each: when, at which version and by whom they were inserted, drawn, reported on and evicted; not
                saved; 0 to 16777216 [off]
            lease_seconds: until an unacknowledged batch goes back; 0.001 to 31622400 [60]
            limiter: samples per insert
            gate: staleness gate for generators
            prompts: prompt replay
            columns: columns of your own, carried untouched: names that begin with x_, and types such as float32 or
                list<int64>
            max_size: another name for capacity

        Raises:
            Invalid: naming each key that is wrong or unknown, with what is wanted.
            Exists: a table of that name has another definition.
        """
        published = method_of(method).keys if method is not None else {}
        return self._create(name, parts, {**published, **given(definition, keys)})

    def _create(self, name: str, parts: int | None, keys: dict[str, Any]) -> Made:
        raise NotImplementedError
