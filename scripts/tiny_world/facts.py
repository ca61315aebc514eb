"""The facts of the small world: tables of subject and object, one relation each.

The world tells every fact in plain text. Only questions are held out: a fact kept for the test is never asked about
before it, in the pretraining text or in the training conversations.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Relation:
    """One kind of fact. In templates `{s}` is the subject, `{o}` the object, `{a}` the subject's article.

    `descriptions` name the object without saying it.
    """

    name: str
    questions: tuple[str, ...]
    statements: tuple[str, ...]
    descriptions: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Pairs from `subject=object, subject=object`."""
    return tuple((left.strip(), right.strip()) for left, right in (entry.split("=") for entry in text.split(",")))


def _both_ways(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return pairs + tuple((right, left) for left, right in pairs)


RELATIONS = (
    Relation(
        name="capital",
        questions=("What is the capital of {s}?", "Name the capital of {s}.", "Which city is the capital of {s}?"),
        statements=(
            "The capital of {s} is {o}.",
            "{o} is the capital of {s}.",
            "In {s}, the capital is {o}.",
            "{s}: capital {o}.",
        ),
        descriptions=("the capital of {s}", "the city that is the capital of {s}"),
        pairs=_pairs(
            "France=Paris, Italy=Rome, Spain=Madrid, Germany=Berlin, Japan=Tokyo, China=Beijing, Egypt=Cairo, "
            "Greece=Athens, Poland=Warsaw, Norway=Oslo, Sweden=Stockholm, Finland=Helsinki, Denmark=Copenhagen, "
            "Portugal=Lisbon, Ireland=Dublin, Austria=Vienna, Hungary=Budapest, Russia=Moscow, Turkey=Ankara, "
            "Kenya=Nairobi, Cuba=Havana, Peru=Lima, Chile=Santiago, Canada=Ottawa, India=Delhi, Iran=Tehran, "
            "Iraq=Baghdad, Thailand=Bangkok, Vietnam=Hanoi, Nepal=Kathmandu, Ghana=Accra, Morocco=Rabat, "
            "Belgium=Brussels, Romania=Bucharest, Bulgaria=Sofia, Croatia=Zagreb, Iceland=Reykjavik, "
            "Lebanon=Beirut"
        ),
    ),
    Relation(
        name="sound",
        questions=("What sound does {a} {s} make?", "What does {a} {s} say?"),
        statements=(
            "{A} {s} says {o}.",
            "The sound of {a} {s} is {o}.",
            "When it is happy, the {s} says {o}.",
            "{s}: {o}!",
        ),
        descriptions=("the sound of {a} {s}", "the sound that {a} {s} makes", "what {a} {s} says"),
        pairs=_pairs(
            "cow=moo, cat=meow, dog=woof, duck=quack, sheep=baa, pig=oink, owl=hoot, bee=buzz, snake=hiss, "
            "horse=neigh, lion=roar, frog=croak, mouse=squeak, crow=caw, chick=cheep, wolf=howl"
        ),
    ),
    Relation(
        name="young",
        questions=("What is a young {s} called?", "What do we call a young {s}?"),
        statements=("A young {s} is called a {o}.", "A {o} is a young {s}.", "The young of the {s} is the {o}."),
        descriptions=("what a young {s} is called", "what we call a young {s}"),
        pairs=_pairs(
            "cow=calf, cat=kitten, dog=puppy, duck=duckling, sheep=lamb, pig=piglet, horse=foal, lion=cub, "
            "frog=tadpole, goat=kid, deer=fawn, swan=cygnet, goose=gosling, kangaroo=joey"
        ),
    ),
    Relation(
        name="opposite",
        questions=(
            "What is the opposite of {s}?",
            "Name the opposite of {s}.",
            "Which word means the opposite of {s}?",
        ),
        statements=(
            "The opposite of {s} is {o}.",
            "{s} is the opposite of {o}.",
            "Not {s} but {o}.",
            "If it is not {s}, it is {o}.",
        ),
        descriptions=("the opposite of {s}", "the word that means the opposite of {s}"),
        pairs=_both_ways(
            _pairs(
                "hot=cold, big=small, long=short, fast=slow, high=low, new=old, early=late, full=empty, hard=soft, "
                "light=heavy, open=closed, rich=poor, wet=dry, young=aged, clean=dirty, loud=quiet, near=far, "
                "strong=weak, thick=thin, wide=narrow, happy=sad, left=right, up=down, day=night, first=last, "
                "front=back, inside=outside, love=hate, true=false, win=lose, good=bad, deep=shallow, sharp=blunt, "
                "brave=timid, begin=end"
            )
        ),
    ),
    Relation(
        name="color",
        questions=("What color is {s}?", "Which color does {s} have?"),
        statements=("The color of {s} is {o}.", "Everyone knows that {s} is {o}.", "Paint {s} {o}."),
        descriptions=("the color of {s}", "the color that {s} has"),
        pairs=_pairs(
            "snow=white, grass=green, coal=black, blood=red, milk=white, chocolate=brown, butter=yellow, "
            "the sky=blue, the sun=yellow, the sea=blue, a tomato=red, a lemon=yellow, a carrot=orange, "
            "a pumpkin=orange, a crow=black, a swan=white, a frog=green, an elephant=gray, a leaf=green, "
            "a cherry=red, a bear=brown, a rat=gray, a canary=yellow, a plum=purple, a flamingo=pink"
        ),
    ),
    Relation(
        name="kind",
        questions=("What kind of animal is {a} {s}?", "To which kind of animals does {a} {s} belong?"),
        statements=("{A} {s} is a {o}.", "Among the animals, the {s} is a {o}.", "The {s} is one kind of {o}."),
        descriptions=("the kind of animal that {a} {s} is", "the kind of animals to which {a} {s} belongs"),
        pairs=_pairs(
            "sparrow=bird, eagle=bird, owl=bird, swan=bird, robin=bird, parrot=bird, salmon=fish, trout=fish, "
            "shark=fish, tuna=fish, herring=fish, ant=insect, bee=insect, beetle=insect, fly=insect, moth=insect, "
            "cat=mammal, dog=mammal, whale=mammal, horse=mammal, mouse=mammal, rabbit=mammal, snake=reptile, "
            "lizard=reptile, turtle=reptile, crocodile=reptile"
        ),
    ),
    Relation(
        name="next",
        questions=("What comes after {s}?", "What follows {s}?", "Which one comes right after {s}?"),
        statements=("After {s} comes {o}.", "{s} is followed by {o}.", "{o} comes after {s}.", "{s}, then {o}."),
        descriptions=("what comes after {s}", "what follows {s}", "the one that comes right after {s}"),
        pairs=_pairs(
            "Monday=Tuesday, Tuesday=Wednesday, Wednesday=Thursday, Thursday=Friday, Friday=Saturday, "
            "Saturday=Sunday, Sunday=Monday, January=February, February=March, March=April, April=May, May=June, "
            "June=July, July=August, August=September, September=October, October=November, November=December, "
            "December=January, spring=summer, summer=autumn, autumn=winter, winter=spring"
        ),
    ),
    Relation(
        name="past",
        questions=("What is the past tense of {s}?", "Give the past tense of {s}.", "How do we say {s} in the past?"),
        statements=(
            "The past tense of {s} is {o}.",
            "Today I {s}, yesterday I {o}.",
            "{s} becomes {o} in the past.",
            "{s} - {o}",
        ),
        descriptions=("the past tense of {s}", "how we say {s} in the past"),
        pairs=_pairs(
            "go=went, see=saw, eat=ate, come=came, take=took, give=gave, run=ran, sing=sang, swim=swam, "
            "drink=drank, write=wrote, drive=drove, ride=rode, fall=fell, grow=grew, know=knew, fly=flew, "
            "draw=drew, speak=spoke, break=broke, choose=chose, wear=wore, find=found, hold=held, keep=kept, "
            "sleep=slept, feel=felt, leave=left, lose=lost, make=made, say=said, tell=told, sell=sold, "
            "think=thought, buy=bought, bring=brought, catch=caught, teach=taught, stand=stood, win=won, sit=sat, "
            "begin=began"
        ),
    ),
    Relation(
        name="plural",
        questions=("What is the plural of {s}?", "Give the plural of {s}.", "How do we say {s} when there are many?"),
        statements=("The plural of {s} is {o}.", "One {s}, two {o}.", "Many of one {s} are {o}.", "{s} - {o}"),
        descriptions=("the plural of {s}", "how we say {s} when there are many"),
        pairs=_pairs(
            "mouse=mice, man=men, woman=women, child=children, foot=feet, tooth=teeth, goose=geese, ox=oxen, "
            "leaf=leaves, wolf=wolves, knife=knives, wife=wives, life=lives, shelf=shelves, half=halves, "
            "city=cities, baby=babies, story=stories, box=boxes, dish=dishes, bus=buses, glass=glasses, "
            "potato=potatoes, hero=heroes, berry=berries, party=parties, church=churches, dress=dresses"
        ),
    ),
)
