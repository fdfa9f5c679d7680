"""MDAgents (Kim et al. 2024): a discussion of clinicians, whose number depends on the difficulty of the case.

Once per case the model rates the difficulty and recruits one clinician (basic), a group (intermediate) or teams
(advanced). At every state a group gives opinions and debates, and a moderator takes the majority. Teams investigate,
and a decision maker reads their reports. "Clinicians" are conversations with the model; each remembers its own.
"""

import copy
import re
from asyncio import gather
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ..environment import NO_ANSWER, State, Turn
from ..llm import Model, Once
from ..seeding import derive_seed
from ..settings import Settings
from .framework import Framework, complete_turn, fill_prompt, join_by_author, number_lines, parse_yes_no

_PROMPT = partial(fill_prompt, "md_agents")  # fills in a prompt of prompts/md_agents.yaml
EXPERTS, TEAMS, MEMBERS = 5, 3, 3  # clinicians of a debate; teams of an advanced case; clinicians of a team
MAX_TOKENS = 1024  # of one answer; the publication names no limit
_DIFFICULTIES = ("basic", "intermediate", "advanced")  # of a case, in the order of their numbers in the prompt
# Lines of a recruiting reply: "1. Cardiologist - reads the ECG", "Group 1 - goal", "Member 1: Surgeon - operates".
_ROLE = r"(?P<role>.+?)[\s*_]*(?:\s[-–—]|:)\s+(?P<skill>.+?)(?:\s[-–—]\s+Hierarchy.*)?$"
_EXPERT = re.compile(rf"\W*\d+[.):][\s*_]*{_ROLE}")
_TEAM = re.compile(r"\W*Group\W*\d+\W+(?P<goal>.+)", re.IGNORECASE)
_MEMBER = re.compile(rf"\W*Member\W*\d+\W+{_ROLE}", re.IGNORECASE)
Roles = list[tuple[str, str]]  # role and skill of each clinician


@dataclass
class Participant:
    """A clinician of the discussion: a name, and the conversation so far, which begins with the system message."""

    name: str
    messages: list[dict[str, str]]


class Team(NamedTuple):
    """Clinicians with a common ``goal``, which the recruiting model wrote. The goal of the single group of an
    intermediate case is empty."""

    goal: str
    members: list[Participant]


class Roster(NamedTuple):
    """The clinicians of a case. ``chair`` decides, in a basic case as the only clinician. ``writer`` summarises the
    debate of an intermediate case, and is None in others. A basic case has no ``teams``, an intermediate one a single
    team, an advanced one several."""

    chair: Participant
    writer: Participant | None = None
    teams: Sequence[Team] = ()


class MDAgents(Framework):
    """The framework MDAgents: recruits clinicians once per case, and lets them discuss every state."""

    reads = ("frameworks.md_agents", "frameworks.temperature")

    def __init__(self, model: Model, settings: Settings, temperature: float):
        """Start without recruited clinicians. Those of a case are recruited once, and kept by its identifier."""
        super().__init__(model, settings, temperature)
        self.settings = settings.frameworks.md_agents
        self._rosters: Once[Roster] = Once()

    def refresh(self) -> None:
        """Clear the caches of the model, and dismiss all recruited clinicians."""
        super().refresh()
        self._rosters = Once()

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Let the recruited clinicians of the case discuss the state. Returns the decision of their chair. The first
        call for a case recruits them."""
        case = state.case
        # The seed of recruiting depends on the case alone, because all episodes of a case share its clinicians.
        start, first_seed = State(case), derive_seed("roster", case.note_id)
        roster = await self._rosters.get(case.note_id, lambda: self._recruit(start, first_seed))
        # A copy, because clinicians do not remember the meetings at earlier states.
        question, task = self.describe_state(state, forced), self.describe_task(forced)
        meeting = Meeting(self, copy.deepcopy(roster), question, task, seed)
        return complete_turn(await meeting.decide(), forced)

    async def tell(self, clinician: Participant, text: str, seed: int, temperature: float | None = None) -> str:
        """Send ``text`` to a clinician and return the answer. Text and answer join the clinician's conversation,
        an empty answer as :data:`NO_ANSWER`. ``temperature`` None means that of discussions. Raises ModelFailure where
        the request fails."""
        messages = [*clinician.messages, {"role": "user", "content": text}]
        call_seed = derive_seed(seed, clinician.name, len(messages))
        used_temperature = self.talk_temperature if temperature is None else temperature
        reply = await self.ask(messages, MAX_TOKENS, call_seed, used_temperature)
        clinician.messages = [*messages, {"role": "assistant", "content": reply or NO_ANSWER}]
        return reply

    async def _recruit(self, state: State, seed: int) -> Roster:
        """Let the model rate the difficulty of a case at its first ``state`` and recruit its clinicians. Returns them:
        one clinician, a group with moderator and writer, or teams with a decision maker."""
        question = self.describe_state(state, False)
        triage = await self._introduce("triage", _PROMPT("triage"), seed)
        level = _parse_level(await self.tell(triage, _PROMPT("difficulty", question=question), seed))
        if level == "basic":
            return Roster(await self._introduce("clinician", _PROMPT("clinician"), seed))
        recruiter = await self._introduce("recruiter", _PROMPT("recruiter"), seed)
        request = _PROMPT(f"recruit_{level}", question=question, experts=EXPERTS, teams=TEAMS, members=MEMBERS)
        reply = await self.tell(recruiter, request, seed)
        if level == "advanced":
            chair = await self._introduce("decision maker", _PROMPT("decision_maker"), seed)
            teams = (self._form_team(n, goal, roles, seed) for n, (goal, roles) in enumerate(_parse_teams(reply)))
            return Roster(chair, teams=await gather(*teams))
        chair, writer, group = await gather(
            self._introduce("moderator", _PROMPT("moderator"), seed),
            self._introduce("writer", _PROMPT("writer"), seed),
            self._form_team(0, "", _parse_experts(reply), seed),
        )
        return Roster(chair, writer, [group])

    async def _form_team(self, number: int, goal: str, roles: Roles, seed: int) -> Team:
        """Make a team with one clinician for each of ``roles``, pairs (role, skill). ``number`` is the index of the
        team in its case; it is part of the seeds."""
        prompts = [_PROMPT("member", role=role, skill=skill) for role, skill in roles]
        seeds = [derive_seed(seed, number, n) for n in range(len(roles))]
        names = [role for role, _ in roles]
        return Team(goal, await gather(*map(self._introduce, names, prompts, seeds)))

    async def _introduce(self, name: str, role: str, seed: int) -> Participant:
        """Make a new clinician with this ``name``. The prompt ``role`` is the system message and, as in the published
        code, also the first question, which the clinician answers."""
        clinician = Participant(name, [{"role": "system", "content": role}])
        await self.tell(clinician, role, seed)
        return clinician


def _parse_level(reply: str) -> str:
    """Read the first level of difficulty in a reply: by its name ("advanced") or its number in the prompt ("3)").
    Returns one of :data:`_DIFFICULTIES`, "intermediate" where the reply has neither."""
    level_of = {level: level for level in _DIFFICULTIES} | {f"{n})": level for n, level in enumerate(_DIFFICULTIES, 1)}
    first = re.search("|".join(map(re.escape, level_of)), reply.lower())
    return level_of[first.group()] if first else "intermediate"


def _parse_experts(reply: str) -> Roles:
    """Read the clinicians in a recruiting reply; returns at most :data:`EXPERTS` pairs (role, skill). A reply with
    fewer than two is replaced by our prompt ``default_experts``."""
    matches = filter(None, map(_EXPERT.match, reply.splitlines()))
    roles = [(match["role"], match["skill"]) for match in matches]
    return roles[:EXPERTS] if len(roles) > 1 else _parse_experts(_PROMPT("default_experts"))


def _parse_teams(reply: str) -> list[tuple[str, Roles]]:
    """Read the teams in a recruiting reply: returns for each team its goal, and the pairs (role, skill) of its members.
    At most :data:`TEAMS` teams of :data:`MEMBERS` members are taken. A reply with fewer than two teams is replaced by
    our prompt ``default_teams``."""
    teams: list[tuple[str, Roles]] = []
    for line in reply.splitlines():
        if match := _MEMBER.match(line):
            if teams:  # a member belongs to the team whose line came last; one before all teams is left out
                _, roles_of_team = teams[-1]
                roles_of_team.append((match["role"], match["skill"]))
        elif match := _TEAM.match(line):
            teams.append((match["goal"], []))
    teams = [(goal, roles[:MEMBERS]) for goal, roles in teams if roles][:TEAMS]
    return teams if len(teams) > 1 else _parse_teams(_PROMPT("default_teams"))


@dataclass
class Meeting:
    """The discussion of the clinicians in ``roster`` about one state. ``question`` is what is known about the patient,
    ``task`` the instruction to decide. ``log`` lists the messages of the debate."""

    agents: MDAgents
    roster: Roster
    question: str
    task: str
    seed: int
    log: list[str] = field(default_factory=list)

    async def decide(self) -> str:
        """Hold the discussion: one clinician answers alone, a group debates, or teams report. Returns the reply in
        which the chair decides, at temperature 0."""
        if not self.roster.teams:  # a basic case
            request = _PROMPT("answer", question=self.question, task=self.task)
        elif self.roster.writer:  # an intermediate case
            [group] = self.roster.teams
            answers = await self._debate(group.members, self.roster.writer)
            request = _PROMPT("moderate", question=self.question, task=self.task, answers=answers)
        else:  # an advanced case
            request = _PROMPT("conclude", question=self.question, task=self.task, reports=await self._write_reports())
        return await self.agents.tell(self.roster.chair, request, derive_seed(self.seed, "decision"), 0.0)

    async def _debate(self, group: Sequence[Participant], writer: Participant) -> str:
        """Let a group debate; returns the final answers of all as one text. At first all give an opinion. In each round
        ``writer`` sums up the answers; then, for several turns, each clinician can talk to others; then all answer
        again. After a turn in which no clinician wants to talk, all answer for the last time."""
        answers = await self._tell_all(group, _PROMPT("opinion", question=self.question))
        for _ in range(self.agents.settings.rounds):
            report = await self._tell(writer, _PROMPT("sum_up", question=self.question, opinions=answers))
            for _ in range(self.agents.settings.turns):
                somebody_talks = False
                for index in range(len(group)):
                    heard = "\n\n".join([report, *self.log]).strip()  # the log grows within a turn
                    somebody_talks |= await self._let_talk(index, group, heard)
                if not somebody_talks:
                    break
            answers = await self._tell_all(group, _PROMPT("final_answer", question=self.question))
            if not somebody_talks:
                break
        return answers

    async def _let_talk(self, speaker_index: int, group: Sequence[Participant], heard: str) -> bool:
        """Ask one clinician of a group (its index is ``speaker_index``) whether to talk, and with which colleagues. The
        clinician reads what was said so far (``heard``), and writes a message to each of these colleagues. The messages
        are added to :attr:`log`. Returns whether the clinician wanted to talk."""
        speaker = group[speaker_index]
        if not parse_yes_no(await self._tell(speaker, _PROMPT("talk", heard=heard))):
            return False
        names = number_lines(clinician.name for clinician in group)
        reply = await self._tell(speaker, _PROMPT("whom", names=names))
        for number in dict.fromkeys(map(int, re.findall(r"\b[0-9]{1,3}\b", reply))):  # each named number once
            index = number - 1
            if 0 <= index < len(group) and index != speaker_index:
                name = group[index].name
                message = await self._tell(speaker, _PROMPT("message", name=name))
                self.log.append(f"{speaker.name} to {name}: {message}")
        return True

    async def _write_reports(self) -> str:
        """Let all teams investigate; returns their reports as one text, each below the goal of its team. The team for
        the initial assessment comes first. The team for the final review comes last and reads the other reports."""
        # The published prompt calls these two teams IAT and FRDT. Where no goal names them, the first and the last team
        # of the reply take their parts.
        teams = self.roster.teams
        first = next((team for team in teams if re.search(r"initial|\bIAT\b", team.goal, re.I)), teams[0])
        others = [team for team in teams if team is not first]
        last = next((team for team in others if re.search(r"final|\bFRDT\b", team.goal, re.I)), others[-1])
        earlier = [first, *(team for team in others if team is not last)]
        goals = [team.goal for team in earlier]
        reports = await gather(*(self._investigate(team, "") for team in earlier))
        review = await self._investigate(last, join_by_author(goals, reports))
        return join_by_author([*goals, last.goal], [*reports, review])

    async def _investigate(self, team: Team, earlier_reports: str) -> str:
        """Let a team investigate: its lead asks questions, the other members answer, and the lead writes the report.
        Returns the report. ``earlier_reports`` are reports of other teams, which this team reads; empty: it reads
        none."""
        lead = next((member for member in team.members if "(lead)" in member.name.lower()), team.members[0])
        others = [member for member in team.members if member is not lead]
        names = number_lines(member.name for member in others)
        task = _PROMPT("investigate", question=self.question, goal=team.goal, names=names, before=earlier_reports)
        request = await self._tell(lead, task)
        prompt = _PROMPT("assist", question=self.question, goal=team.goal, asked=request)
        findings = await self._tell_all(others, prompt)
        return await self._tell(lead, _PROMPT("report", goal=team.goal, found=findings))

    async def _tell_all(self, group: Sequence[Participant], text: str) -> str:
        """Send one text to all clinicians of a group; returns their answers as one text, each below the name of its
        author."""
        answers = await gather(*(self._tell(clinician, text, n) for n, clinician in enumerate(group)))
        return join_by_author((clinician.name for clinician in group), answers)

    async def _tell(self, clinician: Participant, text: str, *call: object) -> str:
        """Send ``text`` to a clinician and return the answer. ``call`` (such as the clinician's index) is part of the
        seed of the request, so that clinicians with the same name and text answer independently."""
        return await self.agents.tell(clinician, text, derive_seed(self.seed, *call))
