#include "data/generators/word_stories.h"

namespace hone {
namespace {

constexpr const char* names[] = {"Ada",  "Ben",  "Cara", "Dan",  "Ella", "Finn", "Gina", "Hugo",  "Iris",
                                 "Jack", "Kira", "Leo",  "Mia",  "Noah", "Olga", "Paul", "Rosa",  "Sam",
                                 "Tina", "Umar", "Vera", "Will", "Yara", "Zoe",  "Alma", "Boris", "Clara",
                                 "Emil", "Fay",  "Greg", "Hana", "Ivan", "Jane", "Karl", "Lucy",  "Max"};

constexpr const char* things[] = {
    "apples", "pears",    "plums",   "lemons",  "oranges", "cookies",  "muffins", "candies", "marbles", "stickers",
    "stamps", "coins",    "shells",  "stones",  "beads",   "buttons",  "pencils", "crayons", "books",   "postcards",
    "cards",  "balloons", "ribbons", "flowers", "tulips",  "seeds",    "eggs",    "nuts",    "toys",    "dolls",
    "kites",  "ropes",    "candles", "badges",  "keys",    "feathers", "puzzles", "magnets", "erasers", "notebooks"};

constexpr Container containers[] = {
    {"box", "boxes"},     {"bag", "bags"},     {"basket", "baskets"}, {"jar", "jars"},       {"tray", "trays"},
    {"shelf", "shelves"}, {"crate", "crates"}, {"drawer", "drawers"}, {"packet", "packets"}, {"bucket", "buckets"}};

constexpr WordStory stories[] = {
    // One step.
    {"", "{A} has {x} {o}. {B} gives {A} {y} more. How many {o} does {A} have now?", "{A} has [p=x+y] {o}."},
    {"", "There are {x} {o} on the table and {y} {o} on the floor. How many {o} are there in all?",
     "There are [p=x+y] {o}."},
    {"", "{A} found {x} {o} on Monday and {y} {o} on Tuesday. How many {o} did {A} find?", "{A} found [p=x+y] {o}."},
    {"", "{A} has {x} {o}. {B} has {y} more than {A}. How many {o} does {B} have?", "{B} has [p=x+y] {o}."},
    {"", "{A} had {x} {o} and lost {y} of them. How many {o} are left?", "There are [p=x-y] {o} left."},
    {"", "{A} has {x} {o}. {B} has {y} fewer. How many {o} does {B} have?", "{B} has [p=x-y] {o}."},
    {"", "A shop had {x} {o} in the morning and sold {y} by noon. How many {o} does the shop have now?",
     "The shop has [p=x-y] {o}."},
    {"", "{A} wants {x} {o} and already has {y}. How many more {o} does {A} need?", "{A} needs [p=x-y] {o}."},
    {"", "There are {k} {c} with {x} {o} in each {s}. How many {o} are there?", "There are [p=k*x] {o}."},
    {"", "{A} reads {x} pages a day. How many pages does {A} read in {k} days?", "{A} reads [p=x*k] pages."},
    {"", "One of the {o} costs {x} dollars. How many dollars do {k} {o} cost?", "They cost [p=x*k] dollars."},
    {"", "{A} has {x} {o}. {B} has {k} times as many. How many {o} does {B} have?", "{B} has [p=x*k] {o}."},
    {"p=k*x", "{A} shares {p} {o} fairly among {k} friends. How many {o} does each friend get?",
     "Each friend gets [q=p/k] {o}."},
    {"p=k*x", "{p} {o} are put into {k} {c}, the same number in each {s}. How many {o} are in each {s}?",
     "Each {s} holds [q=p/k] {o}."},
    {"p=k*x", "{A} paid {p} dollars for {k} {o} of the same price. How many dollars did each one cost?",
     "Each one cost [q=p/k] dollars."},
    {"p=k*x", "A {s} holds {k} {o}. How many {c} does {A} need for {p} {o}?", "{A} needs [q=p/k] {c}."},
    // Two steps.
    {"", "{A} has {x} {o}. {A} buys {y} more and then gives {z} to {B}. How many {o} does {A} have now?",
     "After buying, {A} has [p=x+y] {o}. After giving, {A} has [q=p-z] {o}."},
    {"", "{A} has {x} {o}, {B} has {y} and {C} has {z}. How many {o} do they have together?",
     "{A} and {B} have [p=x+y] {o}. With {C} they have [q=p+z] {o}."},
    {"", "{A} has {x} {o}. {B} has {y} more than {A}. How many {o} do they have together?",
     "{B} has [p=x+y] {o}. Together they have [q=x+p] {o}."},
    {"", "{A} has {x} {o}. {B} has {y} fewer than {A}. How many {o} do they have together?",
     "{B} has [p=x-y] {o}. Together they have [q=x+p] {o}."},
    {"", "{A} has {x} {o}. {B} has {k} times as many. How many {o} do they have together?",
     "{B} has [p=x*k] {o}. Together they have [q=x+p] {o}."},
    {"", "There were {x} {o} in the shop. {y} were sold on Monday and {z} on Tuesday. How many {o} are left?",
     "After Monday [p=x-y] {o} are left. After Tuesday [q=p-z] {o} are left."},
    {"", "{A} has {k} {c} of {x} {o} each and {y} loose {o}. How many {o} does {A} have?",
     "The {c} hold [p=k*x] {o}. In all {A} has [q=p+y] {o}."},
    {"", "{A} buys {k} {c} of {x} {o} each and eats {y} of them. How many {o} are left?",
     "{A} buys [p=k*x] {o}. There are [q=p-y] {o} left."},
    {"", "{A} has {x} dollars. {A} buys {k} {o} at {y} dollars each. How many dollars are left?",
     "The {o} cost [p=k*y] dollars. There are [q=x-p] dollars left."},
    {"", "{A} works {k} hours for {x} dollars an hour and spends {y} dollars. How many dollars does {A} keep?",
     "{A} earns [p=k*x] dollars. {A} keeps [q=p-y] dollars."},
    {"", "{A} fills {k} {c} with {x} {o} each, {B} fills {m} {c} with {x} {o} each. How many {o} are in the {c}?",
     "There are [p=k+m] {c}. They hold [q=p*x] {o}."},
    {"p=k*x q=p-y",
     "{A} has {q} {o} and gets {y} more, then shares them fairly among {k} friends. How many {o} does each friend get?",
     "{A} has [p=q+y] {o}. Each friend gets [r=p/k] {o}."},
    {"p=k*x q=p+y",
     "{A} has {q} {o}, keeps {y} and puts the others into {k} {c}, the same number in each. How many {o} are in each "
     "{s}?",
     "{A} puts [p=q-y] {o} into {c}. Each {s} holds [r=p/k] {o}."},
    {"p=k*x",
     "{A} shares {p} {o} fairly among {k} friends. {B}, one of them, already had {y} {o}. How many {o} does {B} have "
     "now?",
     "Each friend gets [q=p/k] {o}. {B} has [r=q+y] {o}."},
    {"p=k*x", "{A} packs {p} {o} into {c} of {k} each and gives {m} {c} away. How many {c} does {A} have left?",
     "{A} packs [q=p/k] {c}. {A} has [r=q-m] {c} left."},
    {"p=k*x", "{k} {o} cost {p} dollars. How many dollars do {m} {o} cost?",
     "Each one costs [q=p/k] dollars. {m} cost [r=q*m] dollars."},
    // Three steps.
    {"", "{A} has {x} {o}. {A} finds {y}, gives {z} to {B} and gets {w} from {C}. How many {o} does {A} have now?",
     "After finding, {A} has [p=x+y] {o}. After giving, {A} has [q=p-z] {o}. At last {A} has [r=q+w] {o}."},
    {"",
     "{A} has {x} {o}. {B} has {y} more than {A}, and {C} has {k} times as many as {B}. How many {o} do {B} and {C} "
     "have together?",
     "{B} has [p=x+y] {o}. {C} has [q=p*k] {o}. Together they have [r=p+q] {o}."},
    {"",
     "{A} has {x} {o}. {B} has {k} times as many, and {C} has {y} fewer than {B}. How many {o} do {A} and {C} have "
     "together?",
     "{B} has [p=x*k] {o}. {C} has [q=p-y] {o}. Together they have [r=x+q] {o}."},
    {"", "{A} buys {k} {c} of {x} {o} and {m} {c} of {y} {o}. How many {o} does {A} buy?",
     "The first {c} hold [p=k*x] {o}. The others hold [q=m*y] {o}. {A} buys [r=p+q] {o}."},
    {"", "{A} buys {k} {o} at {x} dollars each and {m} {u} at {y} dollars each. How many dollars does {A} pay?",
     "The {o} cost [p=k*x] dollars. The {u} cost [q=m*y] dollars. {A} pays [r=p+q] dollars."},
    {"",
     "{A} works {k} hours for {x} dollars an hour. {B} works {m} hours for {y} dollars an hour. How many dollars more "
     "does {A} earn than {B}?",
     "{A} earns [p=k*x] dollars. {B} earns [q=m*y] dollars. {A} earns [r=p-q] dollars more."},
    {"", "{A} picks {x} {o} a day for {k} days, eats {y} of them and gives {z} to {B}. How many {o} are left?",
     "{A} picks [p=x*k] {o}. After eating [q=p-y] {o} are left. After giving [r=q-z] {o} are left."},
    {"", "A shop has {k} {c} of {x} {o}. It sells {y} {o} and gets {z} new ones. How many {o} does the shop have now?",
     "At first it has [p=k*x] {o}. After selling, it has [q=p-y] {o}. At last it has [r=q+z] {o}."},
    {"", "{A} has {x} {o} and {y} {u}. {B} has {z} {o} and {w} {u}. How many more things does {A} have than {B}?",
     "{A} has [p=x+y] things. {B} has [q=z+w] things. {A} has [r=p-q] more."},
    {"",
     "{A} saves {x} dollars a week for {k} weeks and gets {y} dollars from {B}. {A} buys a bike for {z} dollars. How "
     "many dollars are left?",
     "{A} saves [p=x*k] dollars. With the gift {A} has [q=p+y] dollars. There are [r=q-z] dollars left."},
    {"p=k*x q=p-y",
     "{A} has {q} {o} and buys {y} more. {A} shares them fairly among {k} friends. {C}, one of them, gives {m} away. "
     "How many {o} does {C} have "
     "left?",
     "{A} has [p=q+y] {o}. Each friend gets [r=p/k] {o}. {C} has [p=r-m] {o} left."},
    {"p=k*x q=p+y",
     "{A} has {q} {o} and sells {y}. The others go into {k} {c}, the same number in each. How many {o} are in {m} of "
     "the {c}?",
     "There are [p=q-y] {o} left. Each {s} holds [r=p/k] {o}. {m} {c} hold [p=r*m] {o}."},
    {"p=k*x", "{k} {o} cost {p} dollars. {A} has {y} dollars and buys {m} {o}. How many dollars are left?",
     "Each one costs [q=p/k] dollars. {m} cost [r=q*m] dollars. There are [p=y-r] dollars left."},
    {"p=k*x q=j*y",
     "{A} puts {p} {o} into {k} {c} and {q} {u} into {j} {c}, the same number of a kind in each. {B} takes one {s} of "
     "{o} and one {s} of {u}. "
     "How many things does {B} take?",
     "A {s} holds [r=p/k] {o}. A {s} holds [p=q/j] {u}. {B} takes [q=r+p] things."},
    {"", "{A} reads {x} pages a day for {k} days, then {y} pages a day for {m} days. How many pages does {A} read?",
     "First {A} reads [p=x*k] pages. Then {A} reads [q=y*m] pages. In all {A} reads [r=p+q] pages."},
    {"p=k*x",
     "{A} packs {p} {o} into {c} of {k} each. {B} brings {m} more {c}, and {C} takes {j} away. How many {c} are there "
     "now?",
     "{A} packs [q=p/k] {c}. With those of {B} there are [r=q+m] {c}. At last there are [p=r-j] {c}."},
};

}  // namespace

std::span<const WordStory> word_stories() { return stories; }
std::span<const char* const> word_names() { return names; }
std::span<const char* const> word_things() { return things; }
std::span<const Container> word_containers() { return containers; }

}  // namespace hone
