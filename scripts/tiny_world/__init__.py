"""A small synthetic world: problems with answers, plain text about them, conversations about them. All seeded."""

from scripts.tiny_world.conversations import Conversation, conversations
from scripts.tiny_world.documents import END_OF_TEXT, documents
from scripts.tiny_world.problem import Problem
from scripts.tiny_world.skills import SKILLS, Skill

__all__ = ["END_OF_TEXT", "SKILLS", "Conversation", "Problem", "Skill", "conversations", "documents"]
