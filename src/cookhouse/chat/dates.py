"""The day of formats that name one."""

import datetime

CURRENT_DATE = datetime.date(2025, 6, 28)
"""What such a format, or a chat template that asks for the time, has wherever nobody gives another day: always the
same one, that of OpenAI's examples of Harmony, so that a conversation has the same tokens on every day, in training as
in sampling.
"""
