"""The words that the sample reviews are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """The words for the wines of one grape."""

    color: str
    fruits: Sequence[str]
    notes: Sequence[str]
    food: Sequence[str]


@dataclass(frozen=True)
class Province:
    """Its places, and the grapes that grow there."""

    places: Sequence[str]
    varieties: Sequence[str]


_RED_FOOD = (
    "braised short ribs",
    "roast leg of lamb",
    "wild mushroom ragù",
    "a charred ribeye",
    "venison stew",
    "aged Manchego",
    "duck confit",
    "smoked brisket",
)
_WHITE_FOOD = (
    "grilled sardines",
    "oysters on the half shell",
    "roast chicken with lemon",
    "a goat cheese tart",
    "steamed mussels",
    "green papaya salad",
    "seared scallops",
    "a creamy risotto",
)
STYLES = {
    "Cabernet Sauvignon": Style(
        "red",
        ("cassis", "black currant", "blackberry", "black cherry", "plum", "blueberry"),
        ("cedar", "graphite", "tobacco leaf", "dark chocolate", "mint", "espresso", "leather"),
        _RED_FOOD,
    ),
    "Pinot Noir": Style(
        "red",
        ("red cherry", "raspberry", "cranberry", "wild strawberry", "pomegranate", "black cherry"),
        ("forest floor", "rose petal", "cola", "black tea", "clove", "sandalwood", "truffle"),
        ("duck breast", "roast salmon", "mushroom risotto", "pork tenderloin", "a ripe Brie"),
    ),
    "Syrah": Style(
        "red",
        ("blackberry", "boysenberry", "black olive", "blueberry", "damson", "mulberry"),
        ("cracked pepper", "smoked meat", "violet", "licorice", "iron", "game", "roasted coffee"),
        _RED_FOOD,
    ),
    "Merlot": Style(
        "red",
        ("plum", "black cherry", "red currant", "blackberry", "baked raspberry", "fig"),
        ("mocha", "bay leaf", "vanilla", "cedar", "cocoa powder", "dried thyme", "graphite"),
        _RED_FOOD,
    ),
    "Malbec": Style(
        "red",
        ("blackberry", "plum", "boysenberry", "black cherry", "raisin", "cassis"),
        ("violet", "cocoa", "toast", "leather", "smoked paprika", "licorice", "vanilla"),
        ("a charred ribeye", "beef empanadas", "grilled chorizo", "black bean stew"),
    ),
    "Sangiovese": Style(
        "red",
        ("sour cherry", "red plum", "cranberry", "dried cherry", "pomegranate", "blood orange"),
        ("new leather", "tobacco", "dried oregano", "tomato leaf", "clove", "iron", "violet"),
        ("pappardelle with boar", "bistecca", "aged pecorino", "eggplant parmigiana"),
    ),
    "Nebbiolo": Style(
        "red",
        ("red cherry", "wild strawberry", "cranberry", "prune", "raspberry", "orange peel"),
        ("tar", "dried rose", "anise", "truffle", "leather", "white pepper", "camphor"),
        ("tajarin with truffle", "braised beef cheeks", "roast quail", "aged Castelmagno"),
    ),
    "Tempranillo": Style(
        "red",
        ("red plum", "cherry", "blackberry", "dried fig", "raspberry", "cassis"),
        ("dill", "coconut", "saddle leather", "tobacco", "vanilla", "cinnamon", "toasted oak"),
        ("roast suckling pig", "lamb chops", "jamón", "a chickpea stew", "aged Manchego"),
    ),
    "Zinfandel": Style(
        "red",
        (
            "brambly blackberry",
            "raspberry jam",
            "black cherry",
            "boysenberry",
            "prune",
            "cranberry",
        ),
        ("black pepper", "clove", "mocha", "sassafras", "vanilla bean", "dried sage", "licorice"),
        ("smoked brisket", "baby back ribs", "a blue cheese burger", "pulled pork"),
    ),
    "Portuguese Red": Style(
        "red",
        ("black plum", "wild berry", "red cherry", "blackberry", "fig", "mulberry"),
        ("schist", "rockrose", "bitter chocolate", "dried herbs", "smoke", "black pepper", "mint"),
        ("roast kid", "feijoada", "grilled chouriço", "a sheep's milk cheese"),
    ),
    "Chardonnay": Style(
        "white",
        ("ripe pear", "golden apple", "white peach", "lemon curd", "pineapple", "Meyer lemon"),
        ("toasted hazelnut", "butterscotch", "brioche", "flint", "vanilla", "honeysuckle", "crème"),
        _WHITE_FOOD,
    ),
    "Riesling": Style(
        "white",
        ("green apple", "lime", "apricot", "white peach", "tangerine", "grapefruit"),
        ("slate", "petrol", "jasmine", "honey", "ginger", "wet stone", "saffron"),
        ("spicy pad thai", "pork schnitzel", "sushi", "smoked trout", "soft-ripened cheese"),
    ),
    "Sauvignon Blanc": Style(
        "white",
        ("gooseberry", "grapefruit", "passion fruit", "lime zest", "green melon", "guava"),
        ("cut grass", "jalapeño", "boxwood", "sea salt", "lemongrass", "chalk", "fresh basil"),
        _WHITE_FOOD,
    ),
    "Grüner Veltliner": Style(
        "white",
        ("green pear", "yellow apple", "lemon", "grapefruit", "mirabelle plum", "quince"),
        ("white pepper", "arugula", "radish", "fresh ivy", "wet stone", "chervil", "loess"),
        ("schnitzel with lemon", "white asparagus", "steamed trout", "a herb omelet"),
    ),
    "Rosé": Style(
        "rosé",
        ("wild strawberry", "watermelon", "red currant", "peach", "pink grapefruit", "cherry"),
        ("rose petal", "thyme", "sea spray", "white pepper", "orange blossom", "chalk", "mint"),
        ("salade niçoise", "grilled shrimp", "bouillabaisse", "tapenade on toast"),
    ),
    "Sparkling Blend": Style(
        "sparkling wine",
        ("green apple", "lemon zest", "white peach", "quince", "raspberry", "yellow plum"),
        ("brioche", "toasted almond", "chalk", "biscuit", "acacia", "candied ginger", "iodine"),
        ("oysters on the half shell", "fried chicken", "sushi", "salted almonds", "a caviar blini"),
    ),
}

#: Country → how often it is chosen, and its provinces.
PLACES: Mapping[str, tuple[int, Mapping[str, Province]]] = {
    "US": (
        42,
        {
            "California": Province(
                ("Napa Valley", "Sonoma County", "Paso Robles", "Santa Barbara County"),
                ("Cabernet Sauvignon", "Zinfandel", "Chardonnay", "Pinot Noir", "Merlot", "Syrah"),
            ),
            "Oregon": Province(
                ("Willamette Valley", "Dundee Hills", "Eola-Amity Hills"),
                ("Pinot Noir", "Chardonnay", "Rosé"),
            ),
            "Washington": Province(
                ("Columbia Valley", "Walla Walla Valley", "Red Mountain"),
                ("Cabernet Sauvignon", "Merlot", "Syrah", "Riesling"),
            ),
            "New York": Province(
                ("Finger Lakes", "North Fork of Long Island"), ("Riesling", "Merlot", "Rosé")
            ),
        },
    ),
    "France": (
        17,
        {
            "Bordeaux": Province(
                ("Saint-Émilion", "Médoc", "Graves"),
                ("Merlot", "Cabernet Sauvignon", "Sauvignon Blanc"),
            ),
            "Burgundy": Province(("Beaune", "Mercurey", "Mâcon"), ("Pinot Noir", "Chardonnay")),
            "Rhône Valley": Province(("Crozes-Hermitage", "Saint-Joseph"), ("Syrah",)),
            "Loire Valley": Province(("Sancerre", "Touraine"), ("Sauvignon Blanc", "Rosé")),
            "Provence": Province(("Côtes de Provence", "Bandol"), ("Rosé",)),
            "Champagne": Province(("Champagne",), ("Sparkling Blend",)),
            "Alsace": Province(("Alsace",), ("Riesling", "Pinot Noir")),
        },
    ),
    "Italy": (
        15,
        {
            "Tuscany": Province(
                ("Chianti Classico", "Toscana", "Montalcino"), ("Sangiovese", "Merlot")
            ),
            "Piedmont": Province(("Barolo", "Barbaresco", "Langhe"), ("Nebbiolo",)),
            "Lombardy": Province(("Franciacorta",), ("Sparkling Blend", "Chardonnay")),
            "Veneto": Province(("Valdobbiadene", "Bardolino"), ("Sparkling Blend", "Rosé")),
        },
    ),
    "Spain": (
        7,
        {
            "Northern Spain": Province(
                ("Rioja", "Ribera del Duero", "Navarra"), ("Tempranillo", "Rosé")
            ),
            "Catalonia": Province(
                ("Penedès", "Costers del Segre"), ("Sparkling Blend", "Cabernet Sauvignon", "Syrah")
            ),
        },
    ),
    "Portugal": (
        5,
        {
            "Douro": Province(("Douro",), ("Portuguese Red",)),
            "Alentejano": Province(("Alentejano",), ("Portuguese Red", "Syrah")),
            "Lisboa": Province(("Lisboa",), ("Portuguese Red", "Rosé")),
        },
    ),
    "Chile": (
        4,
        {
            "Maipo Valley": Province(("Maipo Valley",), ("Cabernet Sauvignon", "Merlot", "Syrah")),
            "Casablanca Valley": Province(
                ("Casablanca Valley",), ("Sauvignon Blanc", "Chardonnay", "Pinot Noir")
            ),
        },
    ),
    "Argentina": (
        4,
        {
            "Mendoza Province": Province(
                ("Uco Valley", "Luján de Cuyo"), ("Malbec", "Cabernet Sauvignon", "Chardonnay")
            ),
            "Other": Province(("Salta", "Patagonia"), ("Malbec", "Pinot Noir")),
        },
    ),
    "Austria": (
        3,
        {
            "Kamptal": Province(("Kamptal",), ("Grüner Veltliner", "Riesling")),
            "Wachau": Province(("Wachau",), ("Grüner Veltliner", "Riesling")),
            "Burgenland": Province(("Burgenland",), ("Pinot Noir", "Rosé", "Merlot")),
        },
    ),
    "Germany": (
        2,
        {
            "Mosel": Province(("Mosel",), ("Riesling",)),
            "Pfalz": Province(("Pfalz",), ("Riesling", "Pinot Noir", "Rosé")),
        },
    ),
    "Australia": (
        2,
        {
            "South Australia": Province(
                ("Barossa Valley", "McLaren Vale"), ("Syrah", "Cabernet Sauvignon")
            ),
            "Victoria": Province(("Yarra Valley",), ("Pinot Noir", "Chardonnay")),
        },
    ),
    "New Zealand": (
        2,
        {
            "Marlborough": Province(("Marlborough",), ("Sauvignon Blanc", "Pinot Noir")),
            "Central Otago": Province(("Central Otago",), ("Pinot Noir", "Riesling")),
        },
    ),
}
SURNAMES: Mapping[str, Sequence[str]] = {
    "US": ("Alder Creek", "Copper Ridge", "Fallow Hill", "Grey Heron", "Lantern", "Quarry Road"),
    "France": ("Beaulieu", "Clairvaux", "Delorme", "Fontenelle", "Mirambeau", "Sarrazin"),
    "Italy": ("Bellosguardo", "Campolungo", "Morandini", "Pietrasanta", "Roccaforte", "Valdoro"),
    "Spain": ("Altamira", "Del Olmo", "Montesol", "Peñalba", "Sierra Parda", "Valdeluz"),
    "Portugal": ("da Pedra Alta", "do Carvalhal", "dos Moinhos", "da Ribeira", "do Sobreiro"),
    "Chile": ("Aguas Claras", "Cordillera Sur", "Los Quillayes", "Piedra Negra", "Tres Cóndores"),
    "Argentina": ("Alto Cielo", "El Zorzal", "Los Álamos", "Monte Pardo", "Valle Hondo"),
    "Austria": ("Ahornhof", "Brandstätter", "Lindner", "Steinbach", "Weinzierl"),
    "Germany": ("Falkenstein", "Hartmann", "Kellermeister", "Rosenberg", "Schieferhof"),
    "Australia": ("Banksia", "Ironbark", "Magpie Lane", "Old Shed", "Redgum Flat"),
    "New Zealand": ("Harrier Bay", "Kōwhai", "Long Cloud", "Silver Tussock", "Tūī Point"),
}
HOUSES: Mapping[str, Sequence[str]] = {
    "US": ("{} Cellars", "{} Vineyards", "{} Winery"),
    "France": ("Château {}", "Domaine {}", "Maison {}"),
    "Italy": ("Tenuta {}", "Fattoria {}", "Cantina {}"),
    "Spain": ("Bodegas {}", "Finca {}", "Celler {}"),
    "Portugal": ("Quinta {}", "Herdade {}", "Casa {}"),
    "Chile": ("Viña {}", "Casa {}"),
    "Argentina": ("Bodega {}", "Finca {}"),
    "Austria": ("Weingut {}", "Winzerhof {}"),
    "Germany": ("Weingut {}", "Schloss {}"),
    "Australia": ("{} Estate", "{} Wines"),
    "New Zealand": ("{} Estate", "{} Vineyard"),
}
LABELS = (
    "Estate",
    "Reserve",
    "Old Vines",
    "Hillside",
    "Single Vineyard",
    "Barrel Select",
    "",
    "",
    "",
)

OPENINGS = (
    "Aromas of {fruit}, {note} and {note2} lead the nose of this {color}.",
    "This {color} opens with {fruit} and {note}, then shows a hint of {note2} with air.",
    "{Fruit} and {fruit2} are wrapped in {note} on the nose.",
    "From the cooler slopes of {place}, this {color} smells of {note}, {fruit} and {note2}.",
    "There is plenty of {fruit} here, lifted by {note} and framed by {note2}.",
    "A whiff of {note} blows off to reveal {fruit} and {fruit2}.",
)
PALATES = (
    "The palate is {body}, with {fruit2} and {fruit3} carried by {structure}.",
    "Flavors of {fruit2}, {fruit3} and {note3} ride on {structure}.",
    "In the mouth it is {body}, showing {fruit3} against a backdrop of {note3}.",
    "{Body} and {trait}, it delivers {fruit2}, {note3} and a core of {fruit3}.",
    "It feels {body} at first, then {structure} {draw} {fruit3} and {note3}.",
)
BODIES = {
    "red": (
        "medium bodied",
        "full bodied",
        "dense",
        "supple",
        "lean",
        "plush",
        "brawny",
        "polished",
    ),
    "white": ("crisp", "round", "zesty", "creamy", "lean", "racy", "silky", "light footed"),
    "rosé": ("crisp", "dry", "delicate", "juicy", "bright", "silky"),
    "sparkling wine": ("creamy", "crisp", "finely beaded", "zippy", "bone dry", "frothy"),
}
STRUCTURES = {
    "red": (
        "firm tannins",
        "fine-grained tannins",
        "chewy tannins and lively acidity",
        "dusty tannins",
        "ripe tannins",
        "grippy tannins and toasty oak",
    ),
    "white": (
        "bright acidity",
        "a saline edge",
        "mouthwatering acidity",
        "a stony spine",
        "lees-rich texture",
    ),
    "rosé": ("brisk acidity", "a chalky texture", "fresh acidity", "a faint tannic grip"),
    "sparkling wine": ("a fine mousse", "persistent bubbles", "a lively mousse", "taut acidity"),
}
TRAITS = (
    "focused",
    "savory",
    "generous",
    "elegant",
    "rustic",
    "energetic",
    "restrained",
    "layered",
)
#: By score: below 87, below 92, and 92 or more.
VERDICTS = (
    (
        "It is simple but honest.",
        "The finish is short and a touch bitter.",
        "A bit more depth would help.",
        "It turns slightly herbal and green toward the end.",
        "An easygoing bottle for a weeknight.",
    ),
    (
        "The finish is clean and lasting.",
        "Balanced and ready to pour, it overdelivers for what it is.",
        "It lingers on a note of {note}.",
        "There is good length, and the oak stays in its place.",
        "A dependable choice from this producer.",
    ),
    (
        "The finish goes on and on, echoing {note} and {fruit}.",
        "It is a profound wine that has only begun to unfold.",
        "Everything is in harmony, and nothing shouts.",
        "Rarely does {place} show this much detail and grace.",
        "This is a benchmark bottling with years ahead of it.",
    ),
)
CLOSINGS = (
    "Pair it with {food}.",
    "Try it beside {food}.",
    "Drink now through {until}.",
    "Best after {until}.",
    "Serve it with {food}, and drink by {until}.",
    "",
)
