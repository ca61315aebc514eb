"""The day of formats that name one."""

import datetime

CURRENT_DATE = datetime.date(2025, 6, 28)
"""Day of such a format, or of a chat template that asks for the time, unless another is given: that of OpenAI's
examples of Harmony, so that a conversation has the same tokens on every day, in training as in sampling.
"""
