"""MDAgents (Kim et al. 2024): a discussion of clinicians, whose number depends on the difficulty of the case.

Once per case the model rates the difficulty and recruits one clinician (basic), a group (intermediate) or teams
(advanced). At every state a group gives opinions and debates, and a moderator takes the majority; teams investigate,
and a decision maker reads their reports. Clinicians remember their conversation.
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
from .framework import Framework, decision, fill_prompt, numbered_lines, signed_texts, yes_or_no

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
class Participant:
    """A clinician of the discussion, with the conversation so far; its first message is the system message."""

    name: str
    messages: list[dict[str, str]]


@dataclass
class Team:
    """Clinicians with a common goal."""

    goal: str
    members: list[Participant]


@dataclass
class Roster:
    """The clinicians of a case. ``chair`` decides, ``writer`` summarises the debate. A basic case has no ``teams``, an
    intermediate one a single team, an advanced one several."""

    chair: Participant
    writer: Participant | None = None
    teams: Sequence[Team] = ()


class MDAgents(Framework):
    """The framework MDAgents: recruits clinicians once per case, and lets them discuss every state."""

    reads = ("frameworks.md_agents", "frameworks.temperature")

    def __init__(self, model: Model, settings: Settings, temperature: float):
        super().__init__(model, settings, temperature)
        self.settings = settings.frameworks.md_agents
        self._rosters: Once[Roster] = Once()

    def refresh(self) -> None:
        """Clear the caches of the model, and dismiss all recruited clinicians."""
        super().refresh()
        self._rosters = Once()

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Let the recruited clinicians of the case discuss the state; the turn is the decision of their chair."""
        case = state.case
        start, first_seed = State(case), derive_seed("roster", case.note_id)
        roster = await self._rosters.get(case.note_id, lambda: self._recruit(start, first_seed))
        # A copy, because clinicians do not remember the meetings at earlier states.
        meeting = Meeting(self, copy.deepcopy(roster), self.record(state, forced), self.task(forced), seed)
        return decision(await meeting.decision(), forced)

    async def tell(self, clinician: Participant, text: str, seed: int, temperature: float | None = None) -> str:
        """Send ``text`` to a clinician and return the answer; both are added to the clinician's conversation."""
        messages = [*clinician.messages, {"role": "user", "content": text}]
        call_seed = derive_seed(seed, clinician.name, len(messages))
        if temperature is None:
            temperature = self.talk_temperature
        reply = await self.ask(messages, MAX_TOKENS, call_seed, temperature)
        clinician.messages = [*messages, {"role": "assistant", "content": reply or NO_ANSWER}]
        return reply

    async def _recruit(self, state: State, seed: int) -> Roster:
        """Let the model rate the difficulty of a case and recruit its clinicians; returns them."""
        question = self.record(state, False)
        triage = await self._introduce("triage", _PROMPT("triage"), seed)
        level = _read_level(await self.tell(triage, _PROMPT("difficulty", question=question), seed))
        if level == "basic":
            return Roster(await self._introduce("clinician", _PROMPT("clinician"), seed))
        recruiter = await self._introduce("recruiter", _PROMPT("recruiter"), seed)
        request = _PROMPT(f"recruit_{level}", question=question, experts=EXPERTS, teams=TEAMS, members=MEMBERS)
        reply = await self.tell(recruiter, request, seed)
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
        """Make a team of clinicians with these ``roles``, who know them; ``number`` is that of the team."""
        prompts = [(role, _PROMPT("member", role=role, skill=skill)) for role, skill in roles]
        members = [self._introduce(*role, derive_seed(seed, number, n)) for n, role in enumerate(prompts)]
        return Team(goal, await gather(*members))

    async def _introduce(self, name: str, role: str, seed: int) -> Participant:
        """Make a new clinician, who gets the ``role`` as system message and, as in the published code, as first
        question."""
        clinician = Participant(name, [{"role": "system", "content": role}])
        await self.tell(clinician, role, seed)
        return clinician


def _read_level(reply: str) -> str:
    """Read the first level of difficulty in a reply, by name or number ("2)"); "intermediate" where it has none."""
    text = reply.lower()
    names = [(word, level) for n, level in enumerate(_LEVELS, 1) for word in (level, f"{n})")]
    occurrences = [(text.find(word), level) for word, level in names if word in text]
    return min(occurrences)[1] if occurrences else "intermediate"


def _read_experts(reply: str) -> Roles:
    """Read role and skill of the clinicians in a reply; those in our default prompt where it has fewer than two."""
    matches = filter(None, map(_EXPERT.match, reply.splitlines()))
    roles = [(match["role"], match["skill"]) for match in matches]
    return roles[:EXPERTS] if len(roles) > 1 else _read_experts(_PROMPT("default_experts"))


def _read_teams(reply: str) -> list[tuple[str, Roles]]:
    """Read goal and members of the teams in a reply; those in our default prompt where it has fewer than two."""
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
    """The discussion of a roster about one state. ``question`` is what is known about the patient, ``task`` the
    instruction to decide; ``log`` has the messages of the debate."""

    agents: MDAgents
    roster: Roster
    question: str
    task: str
    seed: int
    log: list[str] = field(default_factory=list)

    async def decision(self) -> str:
        """Hold the discussion; returns the reply in which the chair decides, at temperature 0."""
        if not self.roster.teams:
            request = _PROMPT("answer", question=self.question, task=self.task)
        elif self.roster.writer:
            answers = await self._debate(self.roster.teams[0].members, self.roster.writer)
            request = _PROMPT("moderate", question=self.question, task=self.task, answers=answers)
        else:
            request = _PROMPT("conclude", question=self.question, task=self.task, reports=await self._reports())
        return await self.agents.tell(self.roster.chair, request, derive_seed(self.seed, "decision"), 0.0)

    async def _debate(self, group: Sequence[Participant], writer: Participant) -> str:
        """Let a group debate in rounds of turns; returns the final answers of all. A turn in which no clinician wants
        to talk ends the debate."""
        answers = await self._tell_all(group, _PROMPT("opinion", question=self.question))
        for _ in range(self.agents.settings.rounds):
            report = await self._tell(writer, _PROMPT("sum_up", question=self.question, opinions=answers))
            for _ in range(self.agents.settings.turns):
                wants_to_talk = False
                for n in range(len(group)):
                    wants_to_talk |= await self._speak(n, group, "\n\n".join([report, *self.log]).strip())
                if not wants_to_talk:
                    break
            answers = await self._tell_all(group, _PROMPT("final_answer", question=self.question))
            if not wants_to_talk:
                break
        return answers

    async def _speak(self, n: int, group: Sequence[Participant], log: str) -> bool:
        """Let clinician ``n`` of a group read the ``log`` and send messages to colleagues, which are added to it;
        returns whether the clinician wanted to talk."""
        speaker = group[n]
        if not yes_or_no(await self._tell(speaker, _PROMPT("talk", heard=log))):
            return False
        names = numbered_lines(clinician.name for clinician in group)
        reply = await self._tell(speaker, _PROMPT("whom", names=names))
        indices = dict.fromkeys(int(number) - 1 for number in re.findall(r"\b[0-9]{1,3}\b", reply))
        for index in indices:
            if 0 <= index < len(group) and index != n:
                name = group[index].name
                self.log.append(f"{speaker.name} to {name}: {await self._tell(speaker, _PROMPT('message', name=name))}")
        return True

    async def _reports(self) -> str:
        """Let all teams investigate; returns their reports. The team for the initial assessment comes first; that for
        the final review comes last and reads the other reports."""
        teams = self.roster.teams
        first = next((n for n, team in enumerate(teams) if re.search(r"initial|\bIAT\b", team.goal, re.I)), 0)
        last = next((n for n, team in enumerate(teams) if re.search(r"final|\bFRDT\b", team.goal, re.I)), -1)
        last = len(teams) - 1 if last in (-1, first) else last
        order = [first, *(n for n in range(len(teams)) if n not in (first, last)), last]
        goals = [teams[n].goal for n in order]
        reports = await gather(*(self._investigate(teams[n], "") for n in order[:-1]))
        review = await self._investigate(teams[last], signed_texts(goals[:-1], reports))
        return signed_texts(goals, [*reports, review])

    async def _investigate(self, team: Team, earlier_reports: str) -> str:
        """Let a team investigate: its lead asks questions, the other members answer, the lead writes the report, which
        is returned."""
        lead = next((member for member in team.members if "(lead)" in member.name.lower()), team.members[0])
        others = [member for member in team.members if member is not lead]
        names = numbered_lines(member.name for member in others)
        request = await self._tell(
            lead, _PROMPT("investigate", question=self.question, goal=team.goal, names=names, before=earlier_reports)
        )
        prompt = _PROMPT("assist", question=self.question, goal=team.goal, asked=request)
        findings = await self._tell_all(others, prompt)
        return await self._tell(lead, _PROMPT("report", goal=team.goal, found=findings))

    async def _tell_all(self, group: Sequence[Participant], text: str) -> str:
        """Send one text to all clinicians of a group; returns their answers, each below the name of its author."""
        answers = await gather(*(self._tell(clinician, text, n) for n, clinician in enumerate(group)))
        return signed_texts((clinician.name for clinician in group), answers)

    async def _tell(self, clinician: Participant, text: str, *call: object) -> str:
        """Send ``text`` to a clinician and return the answer. The seed of the request is derived from that of the
        meeting and ``call``."""
        return await self.agents.tell(clinician, text, derive_seed(self.seed, *call))
