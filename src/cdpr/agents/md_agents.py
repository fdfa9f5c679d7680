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
from .framework import Calls, Framework, Prompts, decision, numbered, titled, yes_or_no

_SAY = Prompts("md_agents")
EXPERTS, TEAMS, MEMBERS = 5, 3, 3  # who debate; teams of an advanced case; clinicians of a team (published code)
MAX_TOKENS = 1024  # of one answer; the description names no limit
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
    """Clinicians recruited for a case."""

    reads = ("frameworks.md_agents", "frameworks.temperature")

    def __init__(self, model: Model, settings: Settings, temperature: float):
        super().__init__(model, settings, temperature)
        self.settings = settings.frameworks.md_agents
        self.talk_temperature = settings.frameworks.temperature
        self._rosters: dict[str, asyncio.Task[Roster]] = {}

    def refresh(self) -> None:
        super().refresh()
        self._rosters.clear()

    @classmethod
    def calls(cls, settings: Settings) -> Calls:
        """Expected is an intermediate case, in whose debate two clinicians speak to one another, and then nobody."""
        own = settings.frameworks.md_agents
        once = {"basic": 1, "intermediate": 4 + EXPERTS, "advanced": 3 + TEAMS * MEMBERS}
        before = [2 + once[level] for level in _LEVELS]  # 2: the triage
        usual = 2 + once["intermediate"]
        silent = 3 * EXPERTS + 2  # opinions, their summary, a turn, final answers, the decision
        spoken = silent + 4 + EXPERTS * (own.turns > 1)
        everyone_to_all = own.turns * EXPERTS * (1 + EXPERTS)
        debate = EXPERTS + own.rounds * (1 + everyone_to_all + EXPERTS) + 1
        many = max(debate, TEAMS * (MEMBERS + 1) + 1)
        if own.recheck:
            return Calls((1 + min(before), spoken + usual, many + max(before)), MAX_TOKENS)
        return Calls((1, spoken, many), MAX_TOKENS, (min(before), usual, max(before)))

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        meeting = Meeting(self, await self._roster(state, seed), self.record(state, forced), self.task(forced), seed)
        return decision(await meeting.decision(), forced)

    async def hear(self, listener: Clinician, text: str, seed: int, temperature: float | None = None) -> str:
        """What a clinician answers, and remembers."""
        said = [*listener.said, {"role": "user", "content": text}]
        warmth = self.talk_temperature if temperature is None else temperature
        call = derive_seed(seed, listener.name, len(said))
        reply = await self.ask(said, MAX_TOKENS, call, warmth)
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
        question = self.record(state, False)
        triage = await self._introduced("triage", _SAY("triage"), seed)
        level = _level(await self.hear(triage, _SAY("difficulty", question=question), seed))
        if level == "basic":
            return Roster(await self._introduced("clinician", _SAY("clinician"), seed))
        recruiter = await self._introduced("recruiter", _SAY("recruiter"), seed)
        asked = _SAY(f"recruit_{level}", question=question, experts=EXPERTS, teams=TEAMS, members=MEMBERS)
        reply = await self.hear(recruiter, asked, seed)
        if level == "advanced":
            return Roster(await self._introduced("decision maker", _SAY("decision_maker"), seed),
                          teams=await self._teams(_read_teams(reply), seed))  # fmt: skip
        people = _read_experts(reply)
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


def _level(reply: str) -> str:
    """The first level that a reply names; "intermediate" where it names none."""
    text = reply.lower()
    places = [
        (text.find(word), level) for n, level in enumerate(_LEVELS, 1) for word in (level, f"{n})") if word in text
    ]
    return min(places)[1] if places else "intermediate"


def _read_experts(reply: str) -> list[tuple[str, str]]:
    """Role and skill of each clinician of the group; a group of ours where fewer than two can be read."""
    people = [(m["role"], m["skill"]) for m in _matches(reply, _EXPERT)]
    return people[:EXPERTS] if len(people) > 1 else _read_experts(_SAY("default_experts"))


def _read_teams(reply: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Goal and members of each team; teams of ours where fewer than two can be read."""
    teams: list[tuple[str, list[tuple[str, str]]]] = []
    for match in _matches(reply, _MEMBER, _TEAM):
        if match.re is _TEAM:
            teams.append((match["goal"], []))
        elif teams:
            teams[-1][1].append((match["role"], match["skill"]))
    teams = [(goal, people[:MEMBERS]) for goal, people in teams if people][:TEAMS]
    return teams if len(teams) > 1 else _read_teams(_SAY("default_teams"))


def _matches(reply: str, *patterns: re.Pattern[str]) -> list[re.Match[str]]:
    """Lines that follow one of the patterns."""
    lines = [next(filter(None, (pattern.match(line) for pattern in patterns)), None) for line in reply.splitlines()
             if line.strip()]  # fmt: skip
    return [match for match in lines if match]


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
            asked = _SAY("moderate", question=self.question, task=self.task, answers=answers)
        else:
            asked = _SAY("conclude", question=self.question, task=self.task, reports=await self._reports())
        return await self.agents.hear(self.chair, asked, derive_seed(self.seed, "decision"), 0.0)

    async def _debate(self, group: Sequence[Clinician]) -> str:
        """The clinicians' final answers."""
        assert self.writer is not None
        answers = await self._all(group, _SAY("opinion", question=self.question))
        for _ in range(self.agents.settings.rounds):
            report = await self._hear(self.writer, _SAY("sum_up", question=self.question, opinions=answers))
            lively = await self._turns(group, report)
            answers = await self._all(group, _SAY("final_answer", question=self.question))
            if not lively:
                break
        return answers

    async def _turns(self, group: Sequence[Clinician], report: str) -> bool:
        """The turns of a round; whether in each of them somebody spoke up."""
        for _ in range(self.agents.settings.turns):
            spoke = False
            for n, speaker in enumerate(group):
                heard = "\n\n".join([report, *self.log]).strip()
                spoke |= await self._speak(speaker, n, group, heard)
            if not spoke:
                return False
        return True

    async def _speak(self, speaker: Clinician, n: int, group: Sequence[Clinician], heard: str) -> bool:
        """Whether one wants to talk; then each colleague that the reply names gets a message."""
        names = numbered(one.name for one in group)
        willing = yes_or_no(await self._hear(speaker, _SAY("talk", heard=heard)))
        if willing:
            for target in _targets(await self._hear(speaker, _SAY("whom", names=names)), n, len(group)):
                name = group[target].name
                self.log.append(f"{speaker.name} to {name}: {await self._hear(speaker, _SAY('message', name=name))}")
        return bool(willing)

    async def _reports(self) -> str:
        """The teams' reports: the first team assesses; the last one reviews, with the others' reports before it."""
        teams = self.teams
        first = next((n for n, team in enumerate(teams) if re.search(r"initial|\bIAT\b", team.goal, re.I)), 0)
        last = next((n for n, team in enumerate(teams) if re.search(r"final|\bFRDT\b", team.goal, re.I)), -1)
        last = len(teams) - 1 if last in (-1, first) else last
        early = [first, *(n for n in range(len(teams)) if n not in (first, last))]
        reports = dict(zip(early, await gather(*(self._team(teams[n], "") for n in early)), strict=True))
        before = titled((teams[n].goal, text) for n, text in reports.items())
        reports[last] = await self._team(teams[last], before)
        return titled((teams[n].goal, text) for n, text in reports.items())

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


def _targets(reply: str, n: int, size: int) -> list[int]:
    """Places in the group of the colleagues that a reply names by their numbers."""
    numbers = dict.fromkeys(int(number) - 1 for number in re.findall(r"\b[0-9]{1,3}\b", reply))
    return [target for target in numbers if 0 <= target < size and target != n]


def _forget(rosters: dict[str, asyncio.Task[Roster]], name: str, task: asyncio.Task[Roster]) -> None:
    """Drop a failed roster, so that the next call asks again."""
    if (task.cancelled() or task.exception()) and rosters.get(name) is task:
        del rosters[name]
