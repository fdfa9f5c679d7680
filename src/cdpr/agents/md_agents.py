"""MDAgents (Kim et al. 2024): as many clinicians as a case is difficult.

Once per case the model rates the difficulty and recruits: one clinician (basic), a group (intermediate) or teams
(advanced). Per state a group gives opinions, debates, and a moderator takes the majority; teams investigate, and a
decision maker reads their reports. Every clinician remembers the conversation so far.
"""

import copy
import re
from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from ..environment import State, Turn
from ..environment.once import Once
from ..environment.prompt import NO_ANSWER
from ..llm import Model
from ..seeding import derive_seed
from ..settings import Settings
from .framework import Calls, Framework, decision, fill_prompt, numbered_lines, signed_texts, yes_or_no

_PROMPT = partial(fill_prompt, "md_agents")
EXPERTS, TEAMS, MEMBERS = 5, 3, 3  # clinicians of a debate; teams of an advanced case; clinicians of a team
MAX_TOKENS = 1024  # of one answer; the description names no limit
_LEVELS = ("basic", "intermediate", "advanced")
_ROLE = r"(?P<role>.+?)[\s*_]*(?:\s[-–—]|:)\s+(?P<skill>.+?)(?:\s[-–—]\s+Hierarchy.*)?$"
_EXPERT = re.compile(rf"\W*\d+[.):][\s*_]*{_ROLE}")
_TEAM = re.compile(r"\W*Group\W*\d+\W+(?P<goal>.+)", re.IGNORECASE)
_MEMBER = re.compile(rf"\W*Member\W*\d+\W+{_ROLE}", re.IGNORECASE)
Roles = list[tuple[str, str]]  # role and skill of each clinician


@dataclass
class Clinician:
    """A clinician with the conversation so far, the system message first."""

    name: str
    messages: list[dict[str, str]]


@dataclass
class Team:
    goal: str
    members: list[Clinician]


@dataclass
class Roster:
    """Clinicians of a case: ``teams`` of an advanced one, a single team of an intermediate one, none of a basic one.
    ``chair`` decides, ``writer`` summarises the debate."""

    chair: Clinician
    writer: Clinician | None = None
    teams: Sequence[Team] = ()


class MDAgents(Framework):
    """Clinicians recruited for a case."""

    reads = ("frameworks.md_agents", "frameworks.temperature")

    def __init__(self, model: Model, settings: Settings, temperature: float):
        super().__init__(model, settings, temperature)
        self.settings = settings.frameworks.md_agents
        self._rosters: Once[Roster] = Once()

    def refresh(self) -> None:
        super().refresh()
        self._rosters = Once()

    @classmethod
    def calls(cls, settings: Settings) -> Calls:
        """Requests of a workup: the least, the expected and the most, once a case (recruiting) and at every decision.
        Least: a basic case, where one clinician decides. Expected: an intermediate case, in whose debate two clinicians
        exchange one message each. Most: a debate in which all talk to all, or all teams of an advanced case."""
        rounds, turns = settings.frameworks.md_agents.rounds, settings.frameworks.md_agents.turns
        triage = 2
        recruiting = {"basic": 1, "intermediate": 4 + EXPERTS, "advanced": 3 + TEAMS * MEMBERS}
        once = [triage + recruiting[level] for level in _LEVELS]
        silent = 3 * EXPERTS + 2  # opinions, their summary, a turn, final answers, the decision
        spoken = silent + 4 + EXPERTS * (turns > 1)
        debate = EXPERTS + rounds * (1 + turns * EXPERTS * (1 + EXPERTS) + EXPERTS) + 1
        most = max(debate, TEAMS * (MEMBERS + 1) + 1)
        return Calls((1, spoken, most), MAX_TOKENS, (min(once), once[1], max(once)))

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        case = state.case
        start, first_seed = State(case), derive_seed("roster", case.note_id)
        roster = await self._rosters.get(case.note_id, lambda: self._recruit(start, first_seed))
        # A copy, since clinicians remember no earlier state.
        meeting = Meeting(self, copy.deepcopy(roster), self.record(state, forced), self.task(forced), seed)
        return decision(await meeting.decision(), forced)

    async def hear(self, listener: Clinician, text: str, seed: int, temperature: float | None = None) -> str:
        """The answer of a clinician, who remembers question and answer."""
        messages = [*listener.messages, {"role": "user", "content": text}]
        call_seed = derive_seed(seed, listener.name, len(messages))
        if temperature is None:
            temperature = self.talk_temperature
        reply = await self.ask(messages, MAX_TOKENS, call_seed, temperature)
        listener.messages = [*messages, {"role": "assistant", "content": reply or NO_ANSWER}]
        return reply

    async def _recruit(self, state: State, seed: int) -> Roster:
        """Rate the difficulty of a case and recruit its clinicians."""
        question = self.record(state, False)
        triage = await self._introduce("triage", _PROMPT("triage"), seed)
        level = _level(await self.hear(triage, _PROMPT("difficulty", question=question), seed))
        if level == "basic":
            return Roster(await self._introduce("clinician", _PROMPT("clinician"), seed))
        recruiter = await self._introduce("recruiter", _PROMPT("recruiter"), seed)
        request = _PROMPT(f"recruit_{level}", question=question, experts=EXPERTS, teams=TEAMS, members=MEMBERS)
        reply = await self.hear(recruiter, request, seed)
        if level == "advanced":
            chair = await self._introduce("decision maker", _PROMPT("decision_maker"), seed)
            teams = (self._team(number, *team, seed) for number, team in enumerate(_read_teams(reply)))
            return Roster(chair, teams=await gather(*teams))
        roles = _read_experts(reply)
        chair, writer, group = await gather(
            self._introduce("moderator", _PROMPT("moderator"), seed),
            self._introduce("writer", _PROMPT("writer"), seed),
            self._team(0, "", roles, seed),
        )
        return Roster(chair, writer, [group])

    async def _team(self, number: int, goal: str, roles: Roles, seed: int) -> Team:
        """A team of clinicians who know their roles."""
        prompts = [(role, _PROMPT("member", role=role, skill=skill)) for role, skill in roles]
        members = [self._introduce(*role, derive_seed(seed, number, n)) for n, role in enumerate(prompts)]
        return Team(goal, await gather(*members))

    async def _introduce(self, name: str, role: str, seed: int) -> Clinician:
        """A clinician who got the role as the system message and once more as a question."""
        clinician = Clinician(name, [{"role": "system", "content": role}])
        await self.hear(clinician, role, seed)
        return clinician


def _level(reply: str) -> str:
    """The first level that a reply names; "intermediate" where it names none."""
    text = reply.lower()
    names = [(word, level) for n, level in enumerate(_LEVELS, 1) for word in (level, f"{n})")]
    return min(((text.find(word), level) for word, level in names if word in text), default=(0, "intermediate"))[1]


def _read_experts(reply: str) -> Roles:
    """The clinicians of the group; a group of ours where fewer than two can be read."""
    matches = filter(None, map(_EXPERT.match, reply.splitlines()))
    roles = [(match["role"], match["skill"]) for match in matches]
    return roles[:EXPERTS] if len(roles) > 1 else _read_experts(_PROMPT("default_experts"))


def _read_teams(reply: str) -> list[tuple[str, Roles]]:
    """Goal and members of each team; teams of ours where fewer than two can be read."""
    teams: list[tuple[str, Roles]] = []
    for line in reply.splitlines():
        if match := _MEMBER.match(line):
            if teams:
                teams[-1][1].append((match["role"], match["skill"]))
        elif match := _TEAM.match(line):
            teams.append((match["goal"], []))
    teams = [(goal, roles[:MEMBERS]) for goal, roles in teams if roles][:TEAMS]
    return teams if len(teams) > 1 else _read_teams(_PROMPT("default_teams"))


@dataclass
class Meeting:
    """The work of a roster on one state."""

    agents: MDAgents
    roster: Roster
    question: str
    task: str
    seed: int
    log: list[str] = field(default_factory=list)

    async def decision(self) -> str:
        """The reply of the chair, at temperature 0."""
        if not self.roster.teams:
            request = _PROMPT("answer", question=self.question, task=self.task)
        elif self.roster.writer:
            answers = await self._debate(self.roster.teams[0].members, self.roster.writer)
            request = _PROMPT("moderate", question=self.question, task=self.task, answers=answers)
        else:
            request = _PROMPT("conclude", question=self.question, task=self.task, reports=await self._reports())
        return await self.agents.hear(self.roster.chair, request, derive_seed(self.seed, "decision"), 0.0)

    async def _debate(self, group: Sequence[Clinician], writer: Clinician) -> str:
        """The clinicians' final answers, after rounds of turns; a round in whose last turn all are silent ends it."""
        answers = await self._all(group, _PROMPT("opinion", question=self.question))
        for _ in range(self.agents.settings.rounds):
            report = await self._hear(writer, _PROMPT("sum_up", question=self.question, opinions=answers))
            for _ in range(self.agents.settings.turns):
                spoke = False
                for n in range(len(group)):
                    spoke |= await self._speak(n, group, "\n\n".join([report, *self.log]).strip())
                if not spoke:
                    break
            answers = await self._all(group, _PROMPT("final_answer", question=self.question))
            if not spoke:
                break
        return answers

    async def _speak(self, n: int, group: Sequence[Clinician], log: str) -> bool:
        """Whether clinician ``n`` wants to talk; then each colleague that the reply names gets a message."""
        speaker = group[n]
        if not yes_or_no(await self._hear(speaker, _PROMPT("talk", heard=log))):
            return False
        names = numbered_lines(clinician.name for clinician in group)
        reply = await self._hear(speaker, _PROMPT("whom", names=names))
        places = dict.fromkeys(int(number) - 1 for number in re.findall(r"\b[0-9]{1,3}\b", reply))
        for place in places:
            if 0 <= place < len(group) and place != n:
                name = group[place].name
                self.log.append(f"{speaker.name} to {name}: {await self._hear(speaker, _PROMPT('message', name=name))}")
        return True

    async def _reports(self) -> str:
        """The teams' reports: the first team assesses; the last one reviews, with the others' reports before it."""
        teams = self.roster.teams
        first = next((n for n, team in enumerate(teams) if re.search(r"initial|\bIAT\b", team.goal, re.I)), 0)
        last = next((n for n, team in enumerate(teams) if re.search(r"final|\bFRDT\b", team.goal, re.I)), -1)
        last = len(teams) - 1 if last in (-1, first) else last
        order = [first, *(n for n in range(len(teams)) if n not in (first, last)), last]
        goals = [teams[n].goal for n in order]
        reports = await gather(*(self._team(teams[n], "") for n in order[:-1]))
        review = await self._team(teams[last], signed_texts(goals[:-1], reports))
        return signed_texts(goals, [*reports, review])

    async def _team(self, team: Team, earlier_reports: str) -> str:
        """The report of a team: its lead asks, the others investigate, the lead concludes."""
        lead = next((member for member in team.members if "(lead)" in member.name.lower()), team.members[0])
        others = [member for member in team.members if member is not lead]
        names = numbered_lines(member.name for member in others)
        request = await self._hear(
            lead, _PROMPT("investigate", question=self.question, goal=team.goal, names=names, before=earlier_reports)
        )
        findings = await self._all(others, _PROMPT("assist", question=self.question, goal=team.goal, asked=request))
        return await self._hear(lead, _PROMPT("report", goal=team.goal, found=findings))

    async def _all(self, group: Sequence[Clinician], text: str) -> str:
        """The answers of all to one question, below their names."""
        answers = await gather(*(self._hear(clinician, text, n) for n, clinician in enumerate(group)))
        return signed_texts((clinician.name for clinician in group), answers)

    async def _hear(self, listener: Clinician, text: str, *call: object) -> str:
        return await self.agents.hear(listener, text, derive_seed(self.seed, *call))
