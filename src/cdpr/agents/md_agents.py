"""MDAgents (Kim et al. 2024): as many clinicians as a case is difficult.

Once for a case the model says how difficult it is and recruits: one clinician (basic), a group (intermediate) or teams
(advanced). Per state a group gives opinions, debates in rounds of turns and answers, and a moderator takes the
majority; teams investigate, and a decision maker reads their reports. Every clinician remembers the conversation so
far.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..environment import State, Turn
from ..llm import Model
from ..seeding import derive_seed
from ..settings import Settings
from .framework import Breakdown, Calls, Framework, decision, numbered, titled, yes_or_no
from .prompts import Prompts

_SAY = Prompts("md_agents")
_LEVELS = ("basic", "intermediate", "advanced")
_ROLE = r"(?P<role>.+?)[\s*_]*(?:\s[-–—]|:)\s+(?P<skill>.+?)(?:\s[-–—]\s+Hierarchy.*)?$"
_EXPERT = re.compile(rf"\W*\d+[.):][\s*_]*{_ROLE}")
_TEAM = re.compile(r"\W*Group\W*\d+\W+(?P<goal>.+)", re.IGNORECASE)
_MEMBER = re.compile(rf"\W*Member\W*\d+\W+{_ROLE}", re.IGNORECASE)


@dataclass
class Clinician:
    """One who remembers: ``said`` is the conversation so far, the system's word first."""

    name: str
    said: list[dict[str, str]]
    lead: bool = False


@dataclass(frozen=True)
class Team:
    goal: str
    members: tuple[Clinician, ...]


@dataclass(frozen=True)
class Roster:
    """Who works on a case: ``teams`` of an advanced one, a single team of an intermediate one, none of a basic one.
    ``chair`` decides, ``writer`` sums up the debate."""

    chair: Clinician
    writer: Clinician | None = None
    teams: tuple[Team, ...] = ()


class MDAgents(Framework):
    """Clinicians recruited for a case. Its public quirks: a turn in which nobody speaks up ends the debate before final
    answers are asked for; what is heard in a turn is the first opinions in the first round, and later what was said in
    that turn; the report of the writer reaches nobody; the decision maker reads the first team's report alone, the
    last team works twice; unforeseen forms of an answer end the turn.
    """

    reads = ("frameworks.md_agents",)

    def __init__(self, model: Model, settings: Settings, temperature: float):
        super().__init__(model, settings, temperature)
        self.settings = settings.frameworks.md_agents
        self.public = self.settings.quirks == "public"
        self._rosters: dict[str, asyncio.Task[Roster]] = {}

    def refresh(self) -> None:
        super().refresh()
        self._rosters.clear()

    @classmethod
    def calls(cls, settings: Settings) -> Calls:
        """Expected is an intermediate case, in whose debate two clinicians speak to one another, and then nobody."""
        own = settings.frameworks.md_agents
        public, group, triage = own.quirks == "public", own.experts, 2 * (own.difficulty == "adaptive")
        once = {"basic": 1, "intermediate": 4 + group, "advanced": 3 + own.teams * own.members}
        silent = (3 - public) * group + 2  # opinions, their summary, a turn, final answers, the decision
        spoken = silent + 4 + group * (own.turns > 1)
        everyone_to_all = own.turns * group * (2 + group - (not public))
        debated = group + own.rounds * (1 + everyone_to_all + group) + 1
        teams = (own.teams + public) * (own.members + 1) + 1
        turn = {"basic": (1, 1, 1), "intermediate": (silent, spoken, debated), "advanced": (teams, teams, teams)}
        levels = _LEVELS if own.difficulty == "adaptive" else (own.difficulty,)
        usual = "intermediate" if own.difficulty == "adaptive" else own.difficulty
        few, many = (extreme(turn[level][n] for level in levels) for extreme, n in ((min, 0), (max, 2)))
        before = [once[level] + triage for level in levels]
        if own.recheck:
            return Calls((few + min(before), turn[usual][1] + once[usual] + triage, many + max(before)), own.max_tokens)
        return Calls((few, turn[usual][1], many), own.max_tokens, (min(before), once[usual] + triage, max(before)))

    async def decide(self, state: State, forced: bool, seed: int) -> Turn:
        meeting = Meeting(self, await self._roster(state, seed), self.record(state, forced), self.task(forced), seed)
        return decision(await meeting.decision(), forced)

    async def hear(self, listener: Clinician, text: str, seed: int, temperature: float | None = None) -> str:
        """What a clinician answers, and remembers."""
        said = [*listener.said, {"role": "user", "content": text}]
        warmth = self.settings.temperature if temperature is None else temperature
        call = derive_seed(seed, listener.name, len(said))
        reply = await self.ask(said, self.settings.max_tokens, call, warmth)
        listener.said = [*said, {"role": "assistant", "content": reply or "(no answer)"}]
        return reply

    async def _roster(self, state: State, seed: int) -> Roster:
        """That of the case, asked for once until :meth:`refresh`: it depends on nothing but the case."""
        if self.settings.recheck:
            return await self._recruited(state, seed)
        name, rosters = state.case.note_id, self._rosters
        if name not in rosters or rosters[name].get_loop() is not asyncio.get_running_loop():
            rosters[name] = asyncio.create_task(self._recruited(State(state.case), derive_seed("roster", name)))
            rosters[name].add_done_callback(lambda task: _forget(rosters, name, task))
        return await asyncio.shield(rosters[name])

    async def _recruited(self, state: State, seed: int) -> Roster:
        question, settings = self.record(state, False), self.settings
        level: str = settings.difficulty
        if level == "adaptive":
            triage = await self._introduced("triage", _SAY("triage"), seed)
            level = self._level(await self.hear(triage, _SAY("difficulty", question=question), seed))
        if level == "basic":
            return Roster(await self._introduced("clinician", _SAY("clinician"), seed))
        recruiter = await self._introduced("recruiter", _SAY("recruiter"), seed)
        asked = _SAY(f"recruit_{level}", question=question, experts=settings.experts, teams=settings.teams,
                     members=settings.members)  # fmt: skip
        reply = await self.hear(recruiter, asked, seed)
        if level == "advanced":
            return Roster(await self._introduced("decision maker", _SAY("decision_maker"), seed),
                          teams=await self._teams(self._read_teams(reply), seed))  # fmt: skip
        people = self._read_experts(reply)
        chair, writer, [group] = await gather(
            self._introduced("moderator", _SAY("moderator"), seed),
            self._introduced("writer", _SAY("writer"), seed),
            self._teams([("", people)], seed),
        )
        return Roster(chair, writer, (group,))

    async def _teams(self, teams: Sequence[tuple[str, list[tuple[str, str]]]], seed: int) -> tuple[Team, ...]:
        """Teams of clinicians who know their roles."""
        met = await gather(
            *(
                self._introduced(role, _SAY("member", role=role, skill=skill), derive_seed(seed, t, n))
                for t, (_, people) in enumerate(teams)
                for n, (role, skill) in enumerate(people)
            )
        )
        everyone = iter(met)
        return tuple(Team(goal, tuple(next(everyone) for _ in people)) for goal, people in teams)

    async def _introduced(self, name: str, role: str, seed: int) -> Clinician:
        """One who was told the role, as the system's word and once more as a question."""
        found = Clinician(name, [{"role": "system", "content": role}], "(lead)" in name.lower())
        await self.hear(found, role, seed)
        return found

    def _level(self, reply: str) -> str:
        """How difficult the case is. The public code looks for "basic" first, wherever it stands, and goes on without a
        level where it finds none."""
        text = reply.lower()
        at = [
            (text.find(word), level) for n, level in enumerate(_LEVELS, 1) for word in (level, f"{n})") if word in text
        ]
        if self.public and not at:
            raise Breakdown
        found = at[:1] if self.public else sorted(at)
        return found[0][1] if found else "intermediate"

    def _read_experts(self, reply: str) -> list[tuple[str, str]]:
        """Role and skill of each clinician of the group; a group of ours where fewer than two can be read."""
        found = [(m["role"], m["skill"]) for m in self._matched(reply, _EXPERT)]
        return found[: self.settings.experts] if len(found) > 1 else self._read_experts(_SAY("default_experts"))

    def _read_teams(self, reply: str) -> list[tuple[str, list[tuple[str, str]]]]:
        """Goal and members of each team; teams of ours where fewer than two can be read."""
        found: list[tuple[str, list[tuple[str, str]]]] = []
        for match in self._matched(reply, _MEMBER, _TEAM):
            if match.re is _TEAM:
                found.append((match["goal"], []))
            elif found:
                found[-1][1].append((match["role"], match["skill"]))
        found = [(goal, people[: self.settings.members]) for goal, people in found if people][: self.settings.teams]
        return found if len(found) > 1 else self._read_teams(_SAY("default_teams"))

    def _matched(self, reply: str, *patterns: re.Pattern[str]) -> list[re.Match[str]]:
        """Lines that follow one of the patterns; the public code breaks at any other."""
        lines = [line for line in reply.splitlines() if line.strip()]
        found = [next(filter(None, (pattern.match(line) for pattern in patterns)), None) for line in lines]
        if self.public and not all(found):
            raise Breakdown
        return [match for match in found if match]


@dataclass
class Meeting:
    """The work of a roster on one state: its clinicians begin with what they knew of the case, no more."""

    agents: MDAgents
    roster: Roster
    question: str
    task: str
    seed: int
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        def again(one: Clinician) -> Clinician:
            return Clinician(one.name, list(one.said), one.lead)

        chair, writer, teams = self.roster.chair, self.roster.writer, self.roster.teams
        self.chair, self.writer = again(chair), writer and again(writer)
        self.teams = [Team(team.goal, tuple(map(again, team.members))) for team in teams]

    async def decision(self) -> str:
        """The reply of who decides, at temperature 0."""
        if not self.roster.teams:
            asked = _SAY("answer", question=self.question, task=self.task)
        elif self.writer:
            answers = await self._debate(self.teams[0].members)
            told = "None" if answers is None else answers
            asked = _SAY("moderate", question=self.question, task=self.task, answers=told)
        else:
            asked = _SAY("conclude", question=self.question, task=self.task, reports=await self._reports())
        return await self.agents.hear(self.chair, asked, derive_seed(self.seed, "decision"), 0.0)

    async def _debate(self, group: Sequence[Clinician]) -> str | None:
        """The clinicians' final answers; None where the public code has none."""
        public, rounds = self.agents.public, self.agents.settings.rounds
        opinions: str | None = await self._all(group, _SAY("opinion", question=self.question))
        assert self.writer is not None
        answers = None
        for r in range(rounds):
            summing = _SAY("sum_up", question=self.question, opinions=opinions if r == 0 or not public else "")
            report = await self._hear(self.writer, summing)
            lively = await self._turns(group, r, str(opinions) if public else report)
            if lively or not public:
                answers = await self._all(group, _SAY("final_answer", question=self.question))
            if not lively:
                break
            opinions = opinions if public else answers
        return answers

    async def _turns(self, group: Sequence[Clinician], r: int, known: str) -> bool:
        """The turns of a round; whether in each of them somebody spoke up."""
        public = self.agents.public
        for _ in range(self.agents.settings.turns):
            if public:
                self.log = []
            spoke = False
            for n, speaker in enumerate(group):
                left = "\n\n".join(self.log)
                heard = (known if r == 0 else left) if public else f"{known}\n\n{left}".strip()
                spoke |= await self._speak(speaker, n, group, heard)
            if not spoke:
                return False
        return True

    async def _speak(self, speaker: Clinician, n: int, group: Sequence[Clinician], heard: str) -> bool:
        """Whether one wants to talk; then whoever is named gets a message."""
        names = numbered(one.name for one in group)
        willing = yes_or_no(await self._hear(speaker, _SAY("talk", heard=heard)), self.agents.public)
        if willing:
            for target in self._targets(await self._hear(speaker, _SAY("whom", names=names)), n, len(group)):
                name = group[target].name
                self.log.append(f"{speaker.name} to {name}: {await self._hear(speaker, _SAY('message', name=name))}")
        return bool(willing)

    def _targets(self, reply: str, n: int, size: int) -> list[int]:
        if not self.agents.public:
            named = dict.fromkeys(int(number) - 1 for number in re.findall(r"\b[0-9]{1,3}\b", reply))
            return [target for target in named if 0 <= target < size and target != n]
        try:
            named_there = [int(part) - 1 for part in reply.split(",")]
        except ValueError:
            raise Breakdown from None
        if any(not 0 <= target < size for target in named_there):
            raise Breakdown
        return named_there

    async def _reports(self) -> str:
        """What the teams report: the first assesses, the last reviews, here with the others' reports before it."""
        public, teams = self.agents.public, self.teams
        first = next((n for n, team in enumerate(teams) if re.search(r"initial|\bIAT\b", team.goal, re.I)), 0)
        last = next((n for n, team in enumerate(teams) if re.search(r"final|\bFRDT\b", team.goal, re.I)), -1)
        last = len(teams) - 1 if last in (-1, first) else last
        between = [n for n in range(len(teams)) if n != first and (n != last or public)]
        reports = dict(
            zip((first, *between), await gather(*(self._team(teams[n], "") for n in (first, *between))), strict=True)
        )
        before = "" if public else titled((teams[n].goal, text) for n, text in reports.items())
        reports[last] = await self._team(teams[last], before)
        return reports[first] if public else titled((teams[n].goal, text) for n, text in reports.items())

    async def _team(self, team: Team, before: str) -> str:
        """The report of a team: its lead asks, the others investigate, the lead concludes."""
        lead = next((one for one in team.members if one.lead), team.members[0])
        others = [one for one in team.members if one is not lead]
        names = numbered(one.name for one in others)
        asked = await self._hear(
            lead, _SAY("investigate", question=self.question, goal=team.goal, names=names, before=before)
        )
        found = await self._all(others, _SAY("assist", question=self.question, goal=team.goal, asked=asked))
        return await self._hear(lead, _SAY("report", goal=team.goal, found=found))

    async def _all(self, group: Sequence[Clinician], text: str) -> str:
        """The answers of all to one question, under their names."""
        said = await gather(*(self._hear(one, text, n) for n, one in enumerate(group)))
        return titled(zip((one.name for one in group), said, strict=True))

    async def _hear(self, listener: Clinician, text: str, *call: object) -> str:
        return await self.agents.hear(listener, text, derive_seed(self.seed, *call))


def _forget(rosters: dict[str, asyncio.Task[Roster]], name: str, task: asyncio.Task[Roster]) -> None:
    """What failed is asked again the next time."""
    if (task.cancelled() or task.exception()) and rosters.get(name) is task:
        del rosters[name]
