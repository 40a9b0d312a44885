"""The words that the sample products are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """The names and descriptions for products of one kind.

    Attributes:
        nouns: what it is, as written in the name.
        traits: an adjective → a sentence that supports it.
        uses: what it is for; follows "for".
        details: further sentences.
        prices: the lowest and the highest.
    """

    nouns: Sequence[str]
    traits: Mapping[str, str]
    uses: Sequence[str]
    details: Sequence[str]
    prices: tuple[int, int]


BRANDS = (
    "Fellgate",
    "Norrhaven",
    "Tarnfoot",
    "Skarvik",
    "Mossline",
    "Highmoor",
    "Cairnwell",
    "Brackwater",
    "Lodestar",
    "Owlbridge",
)
MODELS = (
    "Alder",
    "Beacon",
    "Drift",
    "Ember",
    "Fjord",
    "Gale",
    "Harrow",
    "Juniper",
    "Larch",
    "Merlin",
    "Nimbus",
    "Orion",
    "Puffin",
    "Quarry",
    "Ridge",
    "Sable",
    "Tundra",
    "Vesper",
    "Wren",
    "Yarrow",
)

_WALKS = (
    "hiking in the mountains",
    "long days on the trail",
    "weekend walks",
    "trekking from hut to hut",
    "walking the dog",
    "autumn hill walks",
)
_NIGHTS = (
    "summer camping",
    "nights above the tree line",
    "family camp sites",
    "winter expeditions",
    "bikepacking trips",
    "festivals",
)
_KITCHEN = ("camp cooking", "quick meals on the trail", "a family on a camp site", "melting snow")

KINDS: Mapping[str, Kind] = {
    "jacket": Kind(
        ("Jacket", "Shell Jacket", "Parka"),
        {
            "waterproof": "A three-layer membrane with taped seams keeps out hours of rain.",
            "warm": "Synthetic fill holds its warmth even when it gets damp.",
            "windproof": "The dense weave stops the wind on exposed ridges.",
            "lightweight": "It weighs less than a bottle of water and packs into its own pocket.",
            "breathable": "Zips under the arms let the heat out on steep climbs.",
            "fleece-lined": "Soft fleece inside makes it pleasant against the skin.",
        },
        (*_WALKS, "commuting by bike", "ski touring"),
        (
            "The hood fits over a helmet.",
            "Two high pockets stay free under a hip belt.",
            "The cuffs close with one hand.",
            "The back is cut long.",
            "It is made from recycled nylon.",
        ),
        (60, 420),
    ),
    "boots": Kind(
        ("Boots", "Hiking Boots", "Trail Shoes"),
        {
            "waterproof": "A sealed lining keeps feet dry in wet grass and shallow streams.",
            "sturdy": "A stiff shank and a high rubber rand protect the foot on scree.",
            "lightweight": "A mesh upper makes them feel like running shoes.",
            "insulated": "Wool felt keeps toes warm well below freezing.",
            "grippy": "Deep lugs bite into mud and hold on wet rock.",
        },
        (*_WALKS, "scrambling", "muddy forest paths"),
        (
            "The laces lock at the ankle.",
            "They can be resoled.",
            "The footbed comes out for drying.",
            "They need hardly any breaking in.",
        ),
        (70, 310),
    ),
    "tent": Kind(
        ("Tent", "Dome Tent", "Tunnel Tent"),
        {
            "roomy": "There is space for mats side by side and for bags in two porches.",
            "stormproof": "Crossed poles and eight guy lines stand firm in a gale.",
            "lightweight": "Thin poles and fabric bring it below two kilograms.",
            "airy": "Wide mesh panels let a breeze through on hot nights.",
            "quick to pitch": "Poles that stay in their sleeves put it up in three minutes.",
        },
        _NIGHTS,
        (
            "The floor stands four metres of water.",
            "Seams are taped.",
            "Loops inside hold a lamp and a line.",
            "Pegs and a repair kit are included.",
        ),
        (110, 690),
    ),
    "sleeping bag": Kind(
        ("Sleeping Bag", "Mummy Bag", "Winter Sleeping Bag"),
        {
            "warm": "It is rated for nights of ten degrees of frost.",
            "lightweight": "It packs to the size of a loaf of bread.",
            "roomy": "There is space to turn over and to bend the knees.",
            "quick-drying": "Hollow fibres dry in an hour of sun.",
        },
        _NIGHTS,
        (
            "The zip runs from either end.",
            "A collar keeps the warmth in.",
            "Two bags can be joined.",
            "A cotton sack for storing comes with it.",
        ),
        (55, 480),
    ),
    "backpack": Kind(
        ("Backpack", "Daypack", "Trekking Pack"),
        {
            "comfortable": "A padded hip belt takes the load off the shoulders.",
            "waterproof": "Welded seams and a roll top keep everything dry.",
            "lightweight": "Without frame and lid it weighs under a kilogram.",
            "airy": "A net holds it off the back, so that shirts stay dry.",
            "durable": "The base is of a fabric that is used for sails.",
        },
        (*_WALKS, "travelling by train", "carrying climbing gear"),
        (
            "Bottles fit into the side pockets.",
            "A rain cover hides in the bottom.",
            "The length of the back can be adjusted.",
            "Loops hold poles and an axe.",
        ),
        (35, 290),
    ),
    "stove": Kind(
        ("Stove", "Gas Stove", "Camp Cooker"),
        {
            "powerful": "It boils a litre in less than three minutes.",
            "compact": "Folded, it fits into a mug.",
            "windproof": "The burner sits deep behind a shield.",
            "frugal": "One small canister lasts a week of breakfasts.",
        },
        _KITCHEN,
        (
            "A piezo spark lights it.",
            "Three legs stand on uneven ground.",
            "The flame can be turned down to a simmer.",
        ),
        (25, 180),
    ),
    "pot": Kind(
        ("Cooking Pot", "Camp Pot", "Pan Set"),
        {
            "light": "It weighs less than the soup in it.",
            "tough": "Thick walls stand the heat of an open fire.",
            "compact": "Handles fold, and bowls nest inside.",
        },
        _KITCHEN,
        ("The lid strains pasta.", "Marks inside show how full it is.", "Nothing sticks to it."),
        (18, 95),
    ),
    "lamp": Kind(
        ("Headlamp", "Lantern", "Torch"),
        {
            "bright": "Its beam reaches a hundred and fifty metres.",
            "rechargeable": "A cable fills the battery in two hours.",
            "waterproof": "It survives a fall into a lake.",
            "small": "One hardly feels that it is there.",
        },
        ("running at night", "reading in the tent", "early starts", "the way to the hut"),
        (
            "A red light spares the eyes of others.",
            "A lock keeps it from going on in the bag.",
            "It warns an hour before the battery is empty.",
        ),
        (15, 120),
    ),
    "trousers": Kind(
        ("Trousers", "Hiking Trousers", "Rain Trousers"),
        {
            "stretchy": "The fabric gives at every high step.",
            "waterproof": "Full-length zips let them go on over boots in a downpour.",
            "quick-drying": "They are dry again before the coffee is ready.",
            "hard-wearing": "Knees and seat are doubled.",
        },
        _WALKS,
        (
            "A pocket on the thigh takes a map.",
            "The waist adjusts without a belt.",
            "The legs can be rolled up and buttoned.",
        ),
        (40, 220),
    ),
    "base layer": Kind(
        ("Merino Shirt", "Base Layer", "Wool Pullover"),
        {
            "warm": "Brushed on the inside, it holds a layer of still air.",
            "soft": "Fine wool does not itch, even after days.",
            "quick-drying": "Sweat moves outwards and is gone.",
            "odourless": "Wool can be worn for a week without being noticed.",
        },
        (*_WALKS, "cold mornings", "ski touring"),
        ("Flat seams do not rub.", "Loops hold the sleeves over the hands.", "The neck zips up."),
        (35, 150),
    ),
    "bottle": Kind(
        ("Bottle", "Thermos Flask", "Mug"),
        {
            "leakproof": "The cap closes with a click and stays closed.",
            "insulated": "Tea stays hot from breakfast until the summit.",
            "light": "Empty, it weighs as much as an apple.",
        },
        ("school and office", "long days on the trail", "winter picnics", "the handlebar"),
        (
            "It goes into the dishwasher.",
            "Ice cubes fit through the neck.",
            "It tastes of nothing.",
        ),
        (9, 55),
    ),
    "poles": Kind(
        ("Trekking Poles", "Walking Poles"),
        {
            "light": "They are easy to swing for hours.",
            "sturdy": "The shafts can carry a whole tent.",
            "foldable": "Three parts on a cord fit into any bag.",
        },
        (*_WALKS, "steep descents", "snowshoeing"),
        (
            "Cork grips stay dry.",
            "Long foam below the grip helps on slopes.",
            "Tips can be changed.",
        ),
        (30, 190),
    ),
    "gloves": Kind(
        ("Gloves", "Winter Gloves"),
        {
            "warm": "Thick lining keeps fingers warm on a chairlift.",
            "waterproof": "A membrane keeps melting snow outside.",
            "thin": "Knots and telephones can be handled with them on.",
        },
        ("snowball fights", "ski touring", "cold mornings", "commuting by bike"),
        (
            "The palms are of goatskin.",
            "A cord keeps them from blowing away.",
            "Cuffs reach far up.",
        ),
        (18, 130),
    ),
}

OPENINGS = (
    "{Article} {first}, {second} {noun} for {use}.",
    "Made for {use}: {article} {noun} that is {first} and {second}.",
    "This {first} and {second} {noun} is our choice for {use}.",
)
PLURAL_OPENINGS = (
    "{First}, {second} {noun} for {use}.",
    "Made for {use}: {noun} that are {first} and {second}.",
    "These {first} and {second} {noun} are our choice for {use}.",
)
