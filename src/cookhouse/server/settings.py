"""Settings of a server, with the values it is tested at, and the options that a service is opened with."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cookhouse.registry import ModelRegistry

EndSessions = Literal["start", "missing", "eof"]
"""Sessions to end: those that an earlier server left; those of them that need a base model which is not offered; or all
at the end of stdin, and none before because it is silent: clients are known to live as long as the server does."""


HOSTED_SAMPLES = 2000
"""Sampling requests that the hosted service takes of a user at a time, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    max_connections: int | None = None
    """At a time; None: what the limit of open files leaves, some of which are spared for the server's own files."""
    max_address_connections: int | None = None
    """Of one address, at a time, that have not sent a key; None: half of all. A client with a key may hold two thousand
    polls, and behind a proxy all come from one address."""
    head_seconds: float = 20.0
    """Until the head of a request has to be there."""
    max_body_bytes: int = 64 * 2**20
    """Largest request body on the wire. The SDK splits training calls at about 5 MB: only a huge datum comes near."""
    max_decoded_bytes: int = 128 * 2**20
    """Largest training request once decompressed, and once decoded, with its tensors dense."""
    max_json_bytes: int = 16 * 2**20
    """Largest request that is JSON: a prompt of a million tokens takes 8 MB."""
    max_upload_bytes: int = 8 * 2**30
    """Largest file of an adapter that is uploaded; it goes to the disk as it comes."""
    max_answer_body_bytes: int = 8 * 2**20
    """Largest request of OpenAI's and Anthropic's clients, which is text: a long context takes a few MB."""
    allowed_origins: Sequence[str] = ()
    """Origins of pages that may ask the endpoint of these clients by a browser; `*`: any."""
    max_queued_bytes: int = 2**29
    """What a tenant may have the server hold: bodies while they are read, and requests, decoded, until they are done;
    beyond it that tenant gets 429."""
    max_pending_bytes: int = 64 * 2**20
    """Of these, those that are with the engine at a time: the others follow as they are done."""
    max_held_bytes: int = 2**31
    """The same of all tenants together; beyond it those get 429 that hold more than an eighth of `max_queued_bytes`."""
    max_queued_requests: int = 512
    """Requests waiting per model."""
    max_queued_samples: int = 8192
    """Sampling requests that a tenant may have waiting or running."""
    max_samplers: int | None = None
    """Weights that a tenant may sample from at a time; samples of others wait their turn. None: any number."""
    as_hosted: bool = False
    """Refuse what the hosted service refuses, in its words: see `HostedRules`."""
    max_snapshot_bytes: int = 256 * 2**20
    """Weights of sampling clients held in the memory of each worker, of all tenants together; the others wait in files
    until they are used. Clients are never told to go, so that a run leaves one behind at every step."""
    max_snapshot_file_bytes: int = 8 * 2**30
    """What these files may take, of all tenants together: for each worker, and for what goes between several. Beyond it
    weights go that nobody is likely to ask for."""
    max_pass_tokens: int = 32768
    """Tokens of several models that one engine turn takes together; a single request may be longer."""
    deterministic: bool = False
    """Give each request a pass of its own, so that its numbers do not depend on what other tenants ask for."""
    samplers_only: bool = False
    """Refuse to train, and to start over a journal that has models to be brought back."""
    journal: str = "files"
    """Where requests are written before they are answered: `files` below the state folder, a URL, `rows` of the
    database, or `off`: a lost engine then loses its models, and a restart all sessions."""
    checkpoints: str | None = None
    """URL of a blob store where the files of checkpoints are kept; None: they lie in the state folder."""
    store_patience_seconds: float = 25.0
    """How long a request that changes something is held while the store is locked or full; it is refused then. The SDK
    waits 60 s for an answer."""
    state_seconds: float = 10.0
    """A model's state is saved when the engine took longer than this since the last one: about what a replay takes."""
    state_cost: float = 0.01
    """Of a model's time, the share that saving its states may take: those of large models come less often."""
    state_bytes: int = 64 * 2**20
    """The same when its requests since then have more bytes than this, or than the state itself."""
    state_retry_seconds: float = 30.0
    """How long no state is saved after one could not be written."""
    max_request_losses: int = 5
    """Engines that may be lost while a request is the first of its model without a result; it is left out then, since
    it may be what ends them."""
    gap_seconds: float = 1.0
    """How long a request waits for one with a smaller `seq_id`: the SDK sends the chunks of a call out of order, the
    first one last, and ids that never come are normal after a client error."""
    restart_gap_seconds: float = 40.0
    """The same at least until so long after a restart: a request that was on its way is sent again within the SDK's
    longest pause, 30 s."""
    long_poll_seconds: float = 25.0
    """Held `retrieve_future` requests are answered 408 after this; the SDK gives up on one at 45 s."""
    result_seconds: float = 300.0
    """A result is kept for this long after it was first fetched."""
    max_unfetched_sample_bytes: int = 256 * 2**20
    """Sampling results nobody fetched, all together; beyond it the tenant with the most loses its oldest (410: the SDK
    samples again)."""
    max_unfetched_training_bytes: int = 2**30
    """Training results nobody fetched, all together; beyond it the tenant with the most loses its oldest (404: the SDK
    raises, since what was asked for has been done, and its result cannot be had again)."""
    stable_reinforce: Literal["", "own"] = ""
    """`own`: train by an objective of ours where the loss `stable_reinforce` is asked for; else that is refused."""
    recording_seconds: float = 86_400.0
    """How long sequences sampled for that loss may be trained on, while their session lives."""
    max_recording_bytes: int = 2**30
    """Of these, of all tenants together; beyond it the oldest go. A token takes 8, and a sequence 512."""
    silent_seconds: float = 60.0
    """Samples of a session without contact for this long are dropped, waiting and running: its client is likely dead,
    and one that is not samples again by itself. The SDK beats every 10 s, but a busy client may stall.
    """
    session_seconds: float = 300.0
    """A session without contact for this long, while the server was awake, has ended: its models are freed with all
    that waits for them. Until then their requests run, in order, since what a client has been promised cannot be taken
    back in parts; what is with the engine then is finished first.
    """
    drain_seconds: float = 30.0
    """A server that is to end answers for so long, at most, what it has accepted."""
    sweep_seconds: float = 10.0
    """How often expired sessions, checkpoints and results are looked for."""
    fwdbwd_max_chunk_len: int = 1024
    """Datums per request, as the SDK reads it."""
    fwdbwd_max_chunk_bytes: int = 5_000_000
    """Payload bytes per request, as the SDK reads it."""
    compress_remote_bodies: bool = True
    """Ask clients on other hosts to compress training requests; on loopback that costs more than it saves."""
    use_retrieve_futures: bool = False
    """Ask clients to poll once per sampler instead of once per sample."""
    max_samples_per_request: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    api_keys: Sequence[str]
    state_dir: Path
    settings: Settings = Settings()
    sources: Mapping[str, str] | None = None
    """As `OfferedModels.fill` takes them."""
    started_as: str = ""
    """As `OfferedModels.fill` takes it; every client may see it."""
    read_state_dirs: Sequence[Path] = ()
    """Of other servers, whose checkpoints this one may load."""
    peft_folders: Sequence[Path] = ()
    """Of adapters that it may load."""
    registry: ModelRegistry | None = None
    """Models that answers can be asked of by name."""
    runs: Mapping[str, str] | None = None
    """The same: `tinker://` paths by name."""
    end_sessions: Collection[EndSessions] = ()
