"""The agents of the acceptance run: how each is started, and what it is unable to do without.

Every one is given the same task and no setting but what is said here; docs/howto tells users the same.
"""

from dataclasses import dataclass, replace
from pathlib import Path

FILE = "hello.txt"
CONTENT = "Hello from behind the door.\n"
TASK = f"Create the file {FILE} with exactly this line in it: {CONTENT.strip()}"
DONE = "The file is written."

WRITE_FUNCTION = '''
def write_file(path: str, content: str) -> str:
    """Write content to the file at path."""
    with open(path, "w") as file:
        file.write(content)
    return "written"
'''


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent and how it is told the task."""

    name: str
    program: str
    """Below the directory that `install` filled."""
    arguments: tuple[str, ...]
    version: tuple[str, ...] = ("--version",)
    unset: tuple[str, ...] = ()
    """Variables of the sandbox that are taken away, to see what they prevent."""
    real_model: bool = False
    """Answered by llama.cpp; there is no file to write, only an answer to give."""
    chained: bool = False
    """Behind a gateway's chain whose first provider fails."""

    def argv(self, directory: Path) -> list[str]:
        """The command to run in the sandbox."""
        unset = [word for name in self.unset for word in ("-u", name)]
        return [*(["env", *unset] if unset else []), str(directory / self.program), *self.arguments]


_CLAUDE = Agent("claude-code", "npm/node_modules/.bin/claude", ("-p", TASK, "--permission-mode", "acceptEdits"))
_OPENCODE = Agent("opencode", "npm/node_modules/.bin/opencode", ("run", TASK))
_CODEX_OPTIONS = ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "-c", "model_provider=lmstudio")
_AIDER = ("--no-git", "--yes-always", "--model", "openai/scripted-model", "--message", TASK, FILE)
_CODEX = Agent("codex", "npm/node_modules/.bin/codex", (*_CODEX_OPTIONS, "-m", "scripted-model", TASK))
_OPENCODE_CHAT = replace(_OPENCODE, name="opencode, chat", arguments=("run", "-m", "inference-local/default", TASK))
_LLM = Agent("llm", "llm/bin/llm", ("-m", "gpt-4o-mini", "--functions", WRITE_FUNCTION, TASK))

AGENTS = (
    _CLAUDE,
    Agent(
        "claude-code, chatty", _CLAUDE.program, _CLAUDE.arguments, unset=("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",)
    ),
    _CODEX,
    _OPENCODE,
    replace(_OPENCODE, name="opencode, responses", arguments=("run", "-m", "openai/gpt-5.2", TASK)),
    _OPENCODE_CHAT,
    replace(_OPENCODE, name="opencode, chatty", unset=("OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE")),
    _LLM,
    Agent("llm, real model", "llm/bin/llm", ("-m", "gpt-4o-mini", "Name one colour of the sky."), real_model=True),
    Agent("aider", "aider/bin/aider", _AIDER),
    *(replace(each, name=f"{each.name}, chain", chained=True) for each in (_CLAUDE, _CODEX, _OPENCODE_CHAT, _LLM)),
)
