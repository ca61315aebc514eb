"""Between the wire's messages and the engine's types; whatever cannot be decoded is an `InputError`."""

from cookhouse.server.wire.fields import ValueCounter
from cookhouse.server.wire.passes import (
    TrainingHead,
    begun_training,
    decode_adam,
    decode_lora,
    decode_pass,
    encode_pass,
    has_empty_chunk,
    parse_training,
    provenance_of,
    training_counter,
)
from cookhouse.server.wire.provenance import Provenance, Span
from cookhouse.server.wire.results_json import result_to_json
from cookhouse.server.wire.samples import SampleShape, decode_sample, encode_sample
from cookhouse.server.wire.training_json import JsonTraining, json_counter, read_json_training

__all__ = [
    "JsonTraining",
    "Provenance",
    "SampleShape",
    "Span",
    "TrainingHead",
    "ValueCounter",
    "begun_training",
    "decode_adam",
    "decode_lora",
    "decode_pass",
    "decode_sample",
    "encode_pass",
    "encode_sample",
    "has_empty_chunk",
    "json_counter",
    "parse_training",
    "provenance_of",
    "read_json_training",
    "result_to_json",
    "training_counter",
]
