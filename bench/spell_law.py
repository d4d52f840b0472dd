"""Chances of a read by the distribution that generates a region with habits (see bench/law.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.special import gammainc, ndtr

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from plan_gap import CANDIDATE_S, HORIZONS, Region  # noqa: E402

from features.arrays import FloatArray, IntArray  # noqa: E402
from features.times import DAY_S  # noqa: E402
from prefetch.plan import Scores  # noqa: E402
from replay.workload.catalogue import ONCE, REREAD, knob  # noqa: E402
from replay.workload.community import FAMILY, PART, families, session_lengths  # noqa: E402
from replay.workload.config import HabitsConfig  # noqa: E402
from replay.workload.interest import Interest  # noqa: E402
from replay.workload.rhythm import Rhythm  # noqa: E402

_LEAST = 1e-4
"""Chances below this are left out."""


class SpellLaw:
    """Chances of a region's files by running spells, by sessions that move on, and by new sessions.

    Known are the appeal of every dataset, its closeness and its users' paces, all passes that have begun, and
    when those reach each file. `alike`: the appeal is unknown; it is the same for all datasets of a category.
    Left out: delays within sessions that begin later, and datasets that a session passes over because they do
    not exist yet.
    """

    def __init__(self, region: Region, habits: HabitsConfig, *, alike: bool = False) -> None:
        self.region, self._habits = region, habits
        workload = region.workload
        config, datasets, tasks = workload.config, workload.catalogue.datasets, workload.tasks
        self._datasets, self._tasks, self._rhythm = datasets, tasks, Rhythm(config)
        self._interest = Interest.of(config, datasets, self._rhythm)
        if alike:
            self._interest = self._interest._replace(weight=_alike(self._interest.weight, datasets.category))
        self._family = families(datasets)
        self._first_file = workload.catalogue.first_file
        self._close, self._sigma, partial = (
            knob(config, datasets, key) for key in ("close_share", "gap_sigma", "partial_share")
        )
        self._next_pass, self._next_spell = _successors(tasks.session, tasks.dataset, tasks.start)
        self._rate = self._sessions_per_mass()
        self._length = np.zeros(datasets.line.size)
        self._length[tasks.dataset] = tasks.length
        self._position = region.file - self._first_file[region.dataset]
        self._progress = self._position / datasets.n_files[region.dataset]
        reached = np.clip((PART[1] - self._progress) / (PART[1] - PART[0]), 0.0, 1.0)
        self._cover = 1 - partial[region.dataset] * (1 - reached)
        reads = workload.reads.slice(0, len(workload.reads))
        self._begun_before = np.append(tasks.start[reads.task], np.inf)

    def at(self, time_s: int) -> Scores:
        """The scores at `time_s` of the files read in the last CANDIDATE_S."""
        self.region.at(time_s)
        item = np.flatnonzero(self.region.last_s > time_s - CANDIDATE_S)
        size = self.region.trace.size_bytes[item]
        return Scores(int(time_s), item, size, HORIZONS, self.chances(time_s, item), self.region.last_s[item])

    def chances(self, time_s: int, item: IntArray) -> FloatArray:
        """float64[k, n]: the chance of a read of each `item`, ascending, within each horizon."""
        now = self._work(time_s)
        ahead = np.array([self._work(time_s + horizon_s) - now for horizon_s in HORIZONS])
        dataset = self.region.dataset[item]
        spells = self._new_spells(now, ahead) + self._moving_on(now, ahead)
        reach = np.maximum(ahead[:, None] - self._progress[item] * self._length[dataset], 0.0)
        never = -spells[:, dataset] * (reach / np.maximum(ahead[:, None], 1e-9)) * self._cover[item]
        never += self._running(now, ahead, item)
        next_s = self.region.next_s[item]
        known = next_s[None, :] < time_s + np.array(HORIZONS)[:, None]
        is_begun = self._begun_before[self.region.next_access[item]] <= now
        return np.where(is_begun, known, -np.expm1(never))

    def _new_spells(self, now: float, ahead: FloatArray) -> FloatArray:
        """float64[k, datasets]: expected spells by sessions that have not begun."""
        datasets, interest = self._datasets, self._interest
        expected = np.zeros((ahead.size, datasets.line.size))
        for k, span in enumerate(ahead):
            own = interest.mass(now, now + span) * self._rate[datasets.category]
            by_line = np.bincount(datasets.line, own, minlength=self._family.size)
            alive = np.clip(np.minimum(interest.end, now + span) - np.maximum(interest.begin, now), 0.0, span)
            expected[k] = own
            for step, reached in enumerate(session_lengths(self._habits.session_share)):
                if step and reached > _LEAST:
                    before = np.maximum(datasets.line - step, 0)
                    inside = self._family[datasets.line] <= datasets.line - step
                    expected[k] += np.where(inside, reached * by_line[before] * alive / max(span, 1e-9), 0.0)
        return expected

    def _moving_on(self, now: float, ahead: FloatArray) -> FloatArray:
        """float64[k, datasets]: spells by running sessions at the datasets ahead of them."""
        tasks, datasets, share = self._tasks, self._datasets, self._habits.session_share
        expected = np.zeros((ahead.size, datasets.line.size))
        pace = self._habits.session_hours / 24
        stays = share * np.exp(-np.maximum(now - tasks.start, 0.0) / pace)
        front = np.flatnonzero((tasks.start <= now) & (now < self._next_spell) & (stays > _LEAST))
        front = front[datasets.role[tasks.dataset[front]] == REREAD]
        awaited = stays[front] / (stays[front] + 1 - share)
        line = datasets.line[tasks.dataset[front]]
        alive = (self._interest.begin <= now) & (now < self._interest.end)
        of_line = np.full(self._family.size, -1)
        of_line[datasets.line[alive]] = np.flatnonzero(alive)
        for step in range(1, FAMILY):
            target = np.minimum(line + step, self._family.size - 1)
            inside = (line + step == target) & (self._family[target] == self._family[line])
            inside &= of_line[target] >= 0
            dataset, chance = of_line[target[inside]], awaited[inside] * share ** (step - 1)
            for k, span in enumerate(ahead):
                within = np.minimum(chance * gammainc(step, span / pace), 1 - 1e-9)
                expected[k] += np.bincount(dataset, -np.log1p(-within), minlength=expected.shape[1])
        return expected

    def _running(self, now: float, ahead: FloatArray, item: IntArray) -> FloatArray:
        """float64[k, n]: the logarithm of the chance that no running spell reads the file again."""
        tasks = self._tasks
        since = now - tasks.start
        some = np.flatnonzero((since >= 0) & (now < self._next_pass))
        dataset = tasks.dataset[some]
        close, waited = self._close[dataset], self._survival(dataset, tasks.gap[some], since[some])
        lasts = (close * waited > _LEAST) & (self._datasets.role[dataset] != ONCE)
        some, close, waited = some[lasts], close[lasts], waited[lasts]
        awaited = close * waited / (close * waited + 1 - close)
        file, first = self.region.file[item], self._first_file[tasks.dataset[some]]
        low, high = np.searchsorted(file, first), np.searchsorted(file, first + tasks.n_files[some])
        spell = np.repeat(np.arange(some.size), high - low)
        place = np.arange(spell.size) + np.repeat(low - np.cumsum(high - low) + (high - low), high - low)
        task = some[spell]
        delay = self._position[item[place]] / tasks.n_files[task] * tasks.length[task]
        never = np.zeros((ahead.size, item.size))
        for k, span in enumerate(ahead):
            until = since[task] + np.maximum(span - delay, 0.0)
            left = self._survival(tasks.dataset[task], tasks.gap[task], until) / waited[spell]
            chance = np.minimum(awaited[spell] * (1 - np.minimum(left, 1.0)), 1 - 1e-9)
            never[k] = np.bincount(place, np.log1p(-chance), minlength=item.size)
        return never

    def _survival(self, dataset: IntArray, median: FloatArray, gap: FloatArray) -> FloatArray:
        """The chance that a gap of a spell is longer than `gap` (days of work)."""
        late = np.log(np.maximum(gap, 1e-9) / np.maximum(median, 1e-9))
        survival: FloatArray = ndtr(-late / np.maximum(self._sigma[dataset], 1e-6))
        return survival

    def _sessions_per_mass(self) -> FloatArray:
        """Per category, the sessions that begin per unit of interest."""
        tasks, datasets = self._tasks, self._datasets
        n = int(datasets.category.max()) + 1
        reread = datasets.role[tasks.dataset] == REREAD
        _, some = np.unique(tasks.session[reread], return_index=True)
        sessions = np.bincount(datasets.category[tasks.dataset[reread][some]], minlength=n)
        mass = np.bincount(datasets.category, self._interest.mass(-np.inf, np.inf), minlength=n)
        rate: FloatArray = sessions / np.maximum(mass, 1e-12)
        return rate

    def _work(self, time_s: int) -> float:
        return float(self._rhythm.work(np.array([(time_s - self.region.begin_s) / DAY_S]))[0])


def _alike(weight: FloatArray, category: IntArray) -> FloatArray:
    """The mean weight of the category, for all that have one."""
    some = weight > 0
    mean = np.bincount(category[some], weight[some]) / np.maximum(np.bincount(category[some]), 1)
    alike = np.zeros(weight.size)
    alike[some] = mean[category[some]]
    return alike


def _successors(session: IntArray, dataset: IntArray, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Per pass, when the next one of its spell begins, and when the next spell of its session; inf if none.

    Only the first pass of a spell stands for it: for the others the time of the next spell is -inf.
    """
    n = start.size
    by_spell = np.lexsort((start, dataset, session))
    same = (np.diff(session[by_spell]) == 0) & (np.diff(dataset[by_spell]) == 0)
    next_pass, next_spell = np.full(n, np.inf), np.full(n, -np.inf)
    next_pass[by_spell[:-1]] = np.where(same, start[by_spell[1:]], np.inf)
    first = by_spell[np.append(True, ~same)]
    first = first[np.lexsort((start[first], session[first]))]
    goes_on = np.diff(session[first], append=-1) == 0
    next_spell[first] = np.where(goes_on, np.append(start[first[1:]], np.inf), np.inf)
    return next_pass, next_spell
