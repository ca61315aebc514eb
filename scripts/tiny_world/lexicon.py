"""The words of the small world. Every list is ordered and fixed: the generator's output depends on it."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words(
    "Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Maria Noah Olivia Paul Quinn Rosa Sam Tina "
    "Umar Vera Will Yara Zoe Adam Bella Carl Dora Eric Fiona George Hana Ivan Julia Karim Lena Mark Nina Oscar"
)

# Things that can be counted, singular and plural.
THINGS = tuple(
    tuple(pair.split("/"))
    for pair in _words(
        "apple/apples book/books coin/coins egg/eggs stone/stones pencil/pencils cup/cups shell/shells card/cards "
        "flower/flowers button/buttons candle/candles nut/nuts stamp/stamps marble/marbles lemon/lemons plum/plums "
        "key/keys box/boxes ticket/tickets pear/pears cookie/cookies letter/letters ribbon/ribbons leaf/leaves "
        "feather/feathers bead/beads brick/bricks photo/photos carrot/carrots"
    )
)

# Words to sort and to reverse; every initial letter is common enough to be drawn.
NOUNS = _words(
    "apple anchor arrow basket bell bird boat bread bridge candle carpet castle chair cloud desk dish door dragon "
    "drum eagle earth engine evening feather fence field flame flute forest garden gate glass goat guitar hammer "
    "harbor hat hill horse house ice ink island jacket jar jelly jewel judge kettle key king kite kitchen ladder "
    "lake lamp leaf lemon letter map market mirror moon mountain needle nest net night nose oak ocean onion "
    "orange oven paint paper pear pencil piano pond queen quilt rabbit rain ribbon river road roof salt sand ship "
    "shoe silver table tent tiger tower train tree umbrella uncle valley vase village violin wagon wall water "
    "whale window yard yarn year zebra zoo"
)

ADJECTIVES = _words(
    "red blue green small big old new heavy light round long short warm cold clean dusty quiet loud bright dark soft "
    "hard thin thick wooden broken empty full pretty strange"
)

# An order to somebody: verb and the objects it can take.
ORDERS = tuple(
    tuple(line.split(" "))
    for line in (
        "open door window box gate drawer book bag jar",
        "close door window box gate drawer book bag jar",
        "clean table floor window kitchen lamp plate shoe mirror",
        "bring chair cup plate lamp book letter bag hammer",
        "paint wall door fence gate chair boat box table",
        "carry box bag ladder basket chair table stone lamp",
        "find key book hat coat ticket letter map hammer",
        "move table chair bed box ladder lamp plant boat",
        "wash plate cup shirt coat car window dish sheet",
        "fix car clock lamp chair fence bike roof boat",
        "sell car bike boat house clock coat guitar painting",
        "take key book hat coat ticket map cup basket",
    )
)

PLACES = _words(
    "garden kitchen market village forest harbor school library station bakery castle meadow valley river museum park "
    "street bridge island farm"
)

WEATHER = _words("sunny rainy windy snowy cloudy foggy stormy mild")

MOODS = _words("happy tired proud calm curious hungry worried glad sleepy brave")

ACTIONS = _words(
    "walked ran looked waited worked played sang laughed rested slept danced swam wandered talked whispered smiled"
)

SEASONS = _words("spring summer autumn winter")

MEALS = ("bread and cheese", "soup", "rice and beans", "apple pie", "fish and potatoes", "pancakes", "salad", "noodles")
