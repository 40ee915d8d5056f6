"""What the scripted model says to an agent: decided by what the request contains, not by who sent it."""

import json
from pathlib import Path

from tests.acceptance.agents import CONTENT, DONE, FILE
from tests.support.dialects import Reply, Say, ToolCall
from tests.support.scripted_model import Asked, Decide

_CALLED = ('"call_1"', '"toolu_1"')
"""The identifiers of our tool calls: whoever sends one back has run the tool."""


def decide_in(workspace: Path) -> Decide:
    """Ask for FILE to be written into `workspace` by whatever tool the agent offers; then say that it is done."""
    path = str(workspace / FILE)
    calls = (
        ToolCall("Write", {"file_path": path, "content": CONTENT}),
        ToolCall("write", {"filePath": path, "content": CONTENT}),
        ToolCall("write_file", {"path": path, "content": CONTENT}),
        ToolCall("apply_patch", {"patchText": f"*** Begin Patch\n*** Add File: {path}\n+{CONTENT}*** End Patch"}),
        ToolCall("exec_command", {"cmd": f"printf '{CONTENT.strip()}\\n' > '{path}'"}),
    )
    listing = f"{FILE}\n```\n{CONTENT}```\n"

    def decide(asked: Asked) -> Reply:
        conversation = json.dumps(asked.conversation)
        if any(called in conversation for called in _CALLED):
            return Say(DONE)
        offered = asked.tools()
        for call in calls:
            if call.name in offered:
                return call
        if "*file listing*" in conversation:  # an agent that edits by what is said, without tools
            return Say(f"{listing}\n{DONE}")
        return Say("A file with one line")  # a title for the conversation, or the like

    return decide
