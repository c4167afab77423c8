#include "core/text/jinja/jinja.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hone {
namespace {

constexpr int64_t kDay = 1736899200;  // 2025-01-15

// The variables of the templates below.
const char* const kVariables =
    "{\"xs\": [3, 1, 2], \"s\": \"  Hello World é日本 \\n\", \"d\": {\"b\": 1, \"a\": [1, 2.5, null, true], "
    "\"C\": {\"k\": \"it's\"}}, \"users\": [{\"name\": \"bob\", \"age\": 3, \"r\": \"u\"}, {\"name\": \"Al\", \"age\": "
    "2}, {"
    "\"name\": \"cy\", \"age\": 9, \"r\": \"u\"}], \"n\": null, \"t\": true, \"f\": 1.0, "
    "\"e\": \"\", \"q\": \"a\\\"b'c\\\\\\n\", \"words\": \"a b  c,d,e\", \"items_\": [\"B\", \"a\", \"C\", \"a\"]}";

struct Case {
  const char* source;
  const char* text;
};

// The texts are the output of Jinja2 3.1.6 (sandboxed, trim_blocks, lstrip_blocks, loop controls, Hugging Face's
// tojson).
const Case kCases[] = {
    {"{{ xs }}|{{ d }}|{{ s|trim }}|{{ f }}|{{ n }}|{{ t }}|{{ q }}|{{ [q, s, '\\x01\\u200b'] }}",
     "[3, 1, 2]|{'b': 1, 'a': [1, 2.5, None, True], 'C': {'k': \"it's\"}}|Hello World é日本|1.0|None|True|a"
     "\"b'c\\\n|['a\"b\\'c\\\\\\n', '  Hello World é日本 \\n', '\\x01\\u200b']"},
    {"{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ s|tojson }}|{{ [1.0,1e20,1e-7,0.1,123456789012345680.0]|tojson }}|{{ "
     "{}|tojson(inden"
     "t=4) }}|{{ []|tojson }}|{{ d|tojson(sort_keys=true, separators=(',',':')) }}",
     "{\"b\": 1, \"a\": [1, 2.5, null, true], \"C\": {\"k\": \"it's\"}}|{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2.5,\n "
     "   null,"
     "\n    true\n  ],\n  \"C\": {\n    \"k\": \"it's\"\n  }\n}|\"  Hello World é日本 \\n\"|[1.0, 1e+20, 1e-07, 0.1, "
     "1.2345678901234568"
     "e+17]|{}|[]|{\"C\":{\"k\":\"it's\"},\"a\":[1,2.5,null,true],\"b\":1}"},
    {"{{ d|tojson(ensure_ascii=true) }}{{ 'é😀'|tojson(ensure_ascii=true) }}",
     "{\"b\": 1, \"a\": [1, 2.5, null, true], \"C\": {\"k\": \"it's\"}}\"\\u00e9\\ud83d\\ude00\""},
    {"{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ "
     "loop.last }}{{ loop"
     ".length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.depth }},{% endfor %}",
     "1032TrueFalse31a1,2121FalseFalse332b1,3210FalseTrue31a1,"},
    {"{% for x in xs if x > 1 %}{{ x }}:{{ loop.length }}{% else %}none{% endfor %}|{% for x in [] %}{% else %}none{% "
     "endfor %}",
     "3:22:2|none"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k,v in "
     "d|dictsort %}{{ k }}{% "
     "endfor %}{% for k,v in d|dictsort(true) %}{{ k }}{% endfor %}",
     "b=1;a=[1, 2.5, None, True];C={'k': \"it's\"};baCabCCab"},
    {"{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "1212121"},
    {"{% set ns = namespace(a=1, b='z') %}{% for i in xs %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ "
     "ns.c is define"
     "d }}",
     "7zFalse"},
    {"{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m() }}{{ "
     "m(1)|length }}",
     "[12x][123][2x]5"},
    {"{% set y = 5 %}{% macro g() %}{{ y }}{% endmacro %}{% set y = 6 %}{{ g() }}", "6"},
    {"{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n-1)|int }}{% endif %}{% endmacro %}{{ fact(5) }}",
     "120"},
    {"{{ xs[0] }}{{ xs[-1] }}{{ xs[::-1] }}{{ xs[1:] }}{{ xs[:-1] }}{{ xs[-2:] }}{{ xs[5:] }}{{ xs[::2] }}{{ "
     "xs[2:0:-1] }}{{ 'héllo'["
     "::-1] }}{{ 'héllo'[1] }}{{ 'héllo'[-2:] }}{{ xs[10] }}{{ xs[-5:2] }}{{ xs[:-10:-1] }}",
     "32[2, 1, 3][1, 2][3, 1][1, 2][][3, 2][2, 1]olléhélo[3, 1][2, 1, 3]"},
    {"{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 4 / 2 }}{{ 2 ** 10 }}{{ 2 ** -1 }}{{ -2 ** 2 }}{{ "
     "7.5 // 2 }}{{ -"
     "7.5 % 2 }}{{ 1 + 2.0 }}{{ true + 1 }}",
     "3-4123.52.010240.543.00.53.02"},
    {"{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 }}{{ 'a' < 'b' }}{{ [1,2] < [1,3] }}{{ 1 != 2 }}{{ not 1 }}{{ not true "
     "or true }}{{ 1"
     " and 2 }}{{ 0 or 'x' }}{{ none == none }}{{ undefd == undefd2 }}",
     "TrueFalseTrueTrueTrueTrueFalseTrue2xTrueTrue"},
    {"{{ 'a' ~ 1 ~ none ~ true ~ undefd }}|{{ 'a' if true else 'b' }}|{{ 'a' if false }}|{{ 'a' if false else 'b' if "
     "false else 'c' }"
     "}",
     "a1NoneTrue|a||c"},
    {"{{ 'x' in 'xyz' }}{{ 4 not in xs }}{{ 'b' in d }}{{ 3 in xs }}{{ 'q' in undefd }}{{ not 'x' in 'abc' }}",
     "TrueTrueTrueTrueFalseTrue"},
    {"{{ x is defined }}{{ nope is defined }}{{ nope is undefined }}{{ n is none }}{{ xs is iterable }}{{ 'a' is "
     "string }}{{ d is map"
     "ping }}{{ xs is mapping }}{{ xs is sequence }}{{ 3 is number }}{{ true is number }}{{ true is boolean }}{{ 3 is "
     "integer }}{{ tr"
     "ue is integer }}{{ 3.0 is float }}{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 3 is equalto 3 }}{{ 3 "
     "is eq(3) }}{{ t"
     " is sameas true }}{{ t is true }}{{ t is false }}{{ 1 is in xs }}{{ 3 is not none }}{{ 'abc' is lower }}{{ 'ABC' "
     "is upper }}{{ "
     "n is not defined }}{{ 3 is gt 2 }}{{ 3 is ge(3) }}{{ m is callable }}{{ nope is iterable }}{{ n is iterable }}{{ "
     "'x' is defined"
     " and true }}",
     "FalseFalseTrueTrueTrueTrueTrueFalseTrueTrueTrueTrueTrueFalseTrueTrueTrueTrueTrueTrueTrueTrueFalseTrueTrueTrueTrue"
     "FalseTrueTrueT"
     "rueTrueFalseTrue"},
    {"{{ words.split() }}{{ words.split(',') }}{{ words.split(' ', 1) }}{{ words.rsplit(',', 1) }}{{ ' a b '.split() "
     "}}{{ ''.split() "
     "}}{{ ''.split(',') }}{{ words.rsplit() }}{{ ' x  y z '.split(none, 1) }}{{ ' x  y z '.rsplit(none, 1) }}",
     "['a', 'b', 'c,d,e']['a b  c', 'd', 'e']['a', 'b  c,d,e']['a b  c,d', 'e']['a', 'b'][]['']['a', 'b', "
     "'c,d,e']['x', 'y z '][' x  "
     "y', 'z']"},
    {"{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.rstrip('ba') }}|{{ "
     "'abc'.startswith('ab')"
     " }}|{{ 'abc'.endswith(('x','c')) }}|{{ 'a-b'.replace('-', '+') }}|{{ 'aaa'.replace('a','b',2) }}|{{ 'hello wORLD "
     "it\\'s'.title("
     ") }}|{{ 'hELLO x'.capitalize() }}|{{ 'abc'.upper() }}|{{ 'ABC'.lower() }}|{{ 'abcb'.find('b') }}{{ "
     "'abcb'.rfind('b') }}{{ 'abcb"
     "'.count('b') }}{{ 'x'.join(['a','b']) }}{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a\\nb\\r\\nc'.splitlines() "
     "}}{{ 'a=b=c'.par"
     "tition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.removeprefix('a') }}{{ '{} {} {x} {{}}'.format(1,'b',x=3) "
     "}}{{ '{1}{0}'.for"
     "mat(1,2) }}|{{ 'ab'.center(7,'*') }}|{{ 'abc'.center(6) }}|{{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4,'0') }}",
     "Hello World é日本|Hello World é日本 \n|  Hello World é日本|a|abc|True|True|a+b|bba|Hello World It'S|Hello "
     "x|ABC|abc|132axbTrueTrue['a"
     "', 'b', 'c']('a', '=', 'b=c')('a=b', '=', 'c')bc1 b 3 {}21|***ab**| abc  |ab  |00ab"},
    {"{{ d.get('b') }}{{ d.get('zz') }}{{ d.get('zz', 5) }}{{ d.keys()|list }}{{ d.values()|list }}{{ d.b }}{{ d['a'] "
     "}}{{ d.C.k }}{{"
     " d['zz'] is defined }}{{ d.zz }}",
     "1None5['b', 'a', 'C'][1, [1, 2.5, None, True], {'k': \"it's\"}]1[1, 2.5, None, True]it'sFalse"},
    {"{{ xs|length }}{{ d|length }}{{ 'héé'|length }}{{ xs|first }}{{ xs|last }}{{ xs|sort }}{{ xs|sort(reverse=true) "
     "}}{{ xs|sum }}{"
     "{ xs|min }}{{ xs|max }}{{ xs|join(',') }}{{ xs|reverse|list }}{{ 'abc'|reverse }}{{ xs|list }}{{ 'ab'|list }}{{ "
     "items_|unique|l"
     "ist }}{{ items_|sort }}{{ items_|sort(case_sensitive=true) }}{{ [1.5,2]|sum }}{{ items_|join }}{{ "
     "users|sum(attribute='age') }}"
     "",
     "33332[1, 2, 3][3, 2, 1]6133,1,2[2, 1, 3]cba[3, 1, 2]['a', 'b']['B', 'a', 'C']['a', 'a', 'B', 'C']['B', 'C', 'a', "
     "'a']3.5BaCa14"},
    {"{{ users|map(attribute='name')|list }}{{ users|map(attribute='r', default='-')|list }}{{ "
     "items_|map('upper')|join('-') }}{{ xs|"
     "select('odd')|list }}{{ xs|reject('equalto', 1)|list }}{{ "
     "users|selectattr('r','defined')|map(attribute='name')|join }}{{ users"
     "|rejectattr('age','gt',2)|list|length }}{{ users|selectattr('r')|list|length }}{{ "
     "users|sort(attribute='name')|map(attribute='n"
     "ame')|list }}{{ xs|select|list }}{{ users|join(',', attribute='name') }}{{ items_|map('replace','a','z')|list }}",
     "['bob', 'Al', 'cy']['u', '-', 'u']B-A-C-A[3, 1][3, 2]bobcy12['Al', 'bob', 'cy'][3, 1, 2]bob,Al,cy['B', 'z', 'C', "
     "'z']"},
    {"{{ none|selectattr('a')|list }}{{ none|select|list }}{{ none|map(attribute='a')|list }}{{ ''|reject|list }}",
     "[][][][]"},
    {"{{ nope|default('D') }}{{ ''|default('D') }}{{ ''|default('D', true) }}{{ n|default('D') }}{{ n|d('D', "
     "boolean=true) }}{{ '3'|i"
     "nt + 1 }}{{ 'x'|int }}{{ 'x'|int(9) }}{{ '3.7'|int }}{{ 3.9|int }}{{ '2.5'|float }}{{ 'z'|float }}{{ 5|string ~ "
     "'a' }}{{ 2.5|ro"
     "und }}{{ 3.5|round }}{{ 2.567|round(2) }}{{ 2.1|round(0,'ceil') }}{{ 42|round }}{{ -3|abs }}{{ 'ff'|int(base=16) "
     "}}",
     "DDNoneD409332.50.05a2.04.02.573.0423255"},
    {"{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb\\n\\nc'|indent(2, true) }}|{{ 'a\\nb\\n\\nc'|indent(2, blank=true) }}|{{ "
     "'a\\nb'|indent('"
     "> ') }}|{{ 'hello world-foo'|title }}|{{ 'hELLO'|capitalize }}|{{ '<a&\"\\'>'|e }}|{{ 'x'|safe }}|{{ '%s is %d "
     "%.2f'|format('a'"
     ", 3, 1.5) }}|{{ 'a%sb' % 'X' }}|{{ '%s-%s' % (1,2) }}|{{ 'one two'|wordcount }}|{{ xs|batch(2)|list }}|{{ "
     "xs|batch(2,'-')|list "
     "}}|{{ '  a '|trim }}|{{ 'xax'|trim('x') }}|{{ 'ab'|center(6) }}|{{ d|items|list }}",
     "a\n    b\n\n    c|  a\n  b\n\n  c|a\n  b\n  \n  c|a\n> b|Hello World-Foo|Hello|&lt;a&amp;&#34;&#39;&gt;|x|a is 3 "
     "1.50|aXb|1-2|2"
     "|[[3, 1], [2]]|[[3, 1], [2, '-']]|a|a|  ab  |[('b', 1), ('a', [1, 2.5, None, True]), ('C', {'k': \"it's\"})]"},
    {"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% "
     "endfor %}{{ range"
     "(3)|list }}{{ range(5,1,-2)|list }}{{ dict(a=1,b=2) }}{{ {'a': 1, 2: 'b'} }}{{ (1,2) }}{{ (1,) }}{{ () }}{{ 1, 2 "
     "}}",
     "02[0, 1, 2][5, 3]{'a': 1, 'b': 2}{'a': 1, 2: 'b'}(1, 2)(1,)()(1, 2)"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set blk %}  hi {{ a }}{% endset %}[{{ blk }}]{% set blk2 | upper | trim %} "
     "hi {% endset %"
     "}[{{ blk2 }}]{% filter upper %}abc{% endfilter %}{% with q = 3, w = 4 %}{{ q + w }}{% endwith %}",
     "12[  hi 1][HI]ABC7"},
    {"{% for x in [[1,[2]],[3]] recursive %}{{ loop.depth }}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% "
     "endif %}{% endfo"
     "r %}",
     "1(212(32))1(23)"},
    {"{% raw %}{{ not }} {% if %}{% endraw %}|{# c #}|{%- raw -%}  x  {%- endraw -%}  |", "{{ not }} {% if %}||x|"},
    {"{{ \"a\" \"b\" }}{{ '\\n\\t\\\\\\'\\x41\\u00e9' }}{{ 0x1f }}{{ 1_000 }}{{ 1e3 }}{{ -1|abs }}{{ - 1 }}{{ xs.0 "
     "}}{{ 1.5e-3 }}{{ 1"
     "e16 }}{{ 1e15 }}{{ 123456789.123 }}{{ 1e100 }}",
     "ab\n\t\\'Aé3110001000.01-130.00151e+161000000000000000.0123456789.1231e+100"},
    {"{%- if true -%}   a   {%- endif -%}   b", "ab"},
    {"{% for x in [1,2] %}{{ loop.changed(x) }}{{ loop.changed(1) }}{% endfor %}", "TrueFalseTrueTrue"},
    {"{{ xs + [4] }}{{ 'ab' * 3 }}{{ [1] * 2 }}{{ 3 * 'x' }}{{ (1,2) + (3,) }}{{ {'a':1}.a }}{{ {'a':1,'a':2} }}{{ "
     "xs|tojson }}{{ [n,"
     "t]|string }}{{ [nope] }}",
     "[3, 1, 2, 4]ababab[1, 1]xxx(1, 2, 3)1{'a': 2}[3, 1, 2][None, True][Undefined]"},
    {"{{ 1 if nope else 2 }}{{ (nope or 'x')|upper }}{{ not nope }}{{ nope|length }}{{ nope|join }}{{ nope|list }}{{ "
     "nope|upper }}|{{"
     " nope|trim }}|",
     "2XTrue0[]||"},
    {"{{ none.foo }}|{{ none.foo is defined }}|{{ 'a'.foo is defined }}|{{ xs.foo is defined }}", "|False|False|False"},
    {"{{ [1,2,3][1:]|first }}{{ 'abc'|first }}{{ 'abc'|last }}{{ ''|first is defined }}", "2acFalse"},
    {"  {% if true %}\n  a\n  {% endif %}\n b\n", "  a\n b"},
    {"a\n  {%- if true %}\n x\n{%- endif %}\n  y", "a x  y"},
    {"{% for x in [1,2] %}\n  {{ x }}\n{% endfor %}\nend\n\n", "  1\n  2\nend\n"},
    {"  {%+ if true %}\nx{% endif +%}\ny", "  x\ny"},
    {"a {#- c -#} b\n  {# d #}\nc", "ab\nc"},
    {"x{{ 1 -}}  \n  y{{- 2 }}", "x1y2"},
    {"{%- set a = 1 -%}\n\n  q\r\nw\r\n", "q\nw"},
    {"\t{% set b = 2 %}\t\n\t {% set c = 2 %}x", "\t\nx"},
    {"{{- \"x\" -}} \n\n {%- if 1 %}  z{% endif %}  \n", "x  z  "},
    {"  {% raw %}  \n  a\n  {% endraw %}  \n b", "  \n  a\n  \n b"},
    {"{% if true %} {% if true %}\n  a{% endif %}\n  {% endif %}x", "   ax"},
    {"a{% if true -%}\n   {% set x = 1 %}\n  b{% endif %}", "a  b"},
    {"{% if x is\n defined\n and true %}\n a{% endif %}", ""},
    {"a\n\n", "a\n"},
    {"{% for m in xs -%}\n\n  {{ m }} {##}\n   {% endfor %}|", "3 1 2 |"},
    {"  {{ 1 }}\n  {{ 2 }}\n", "  1\n  2"},
    {"{{ \"}}\" }}{{ {\"a\":{\"b\":1}} }}{{ {\"a\":{\"b\":{}}}[\"a\"]}}", "}}{'a': {'b': 1}}{'b': {}}"},
    {"x {%- if true -%} {% raw -%}  {{ 1 }} {%- endraw %}  {% endif %}z", "x{{ 1 }}  z"},
    {"\u00a0{%- if true %}\u3000{%- endif %}x", "x"},
    {"{# a {{ b }} {% c #}x{#-#}  y", "x  y"},
};

// Templates that Jinja2 rejects too.
const char* const kRefused[] = {
    "{{ nope.x }}",
    "{{ nope + 'a' }}",
    "{{ 'a' + 1 }}",
    "{{ nope() }}",
    "{{ xs|nofilter }}",
    "{{ raise_exception('bad roles') }}",
    "{{ 1 / 0 }}",
    "{{ xs < 3 }}",
    "{{ nope|tojson }}",
    "{{ range(1000000)|list }}",
    "{{ xs.append(3) }}",
    "{% if %}x{% endif %}",
    "{% endif %}",
    "{{ 'abc }}",
    "{% for x in xs %}{{ x }}",
    "{{ 3 is foo }}",
    "{{ d.items()|list|first }}{{ d.update({'a':1}) }}",
};

JinjaTemplate::Output render(std::string_view source) {
  return JinjaTemplate(source).render(parse_json(kVariables, "variables"), kDay);
}

std::string error_of(std::string_view source) {
  try {
    render(source);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Jinja, WritesWhatJinja2Writes) {
  for (const Case& one : kCases) EXPECT_EQ(render(one.source).text, one.text) << one.source;
}

TEST(Jinja, RefusesWhatJinja2RefusesAndSaysTheLine) {
  for (const char* source : kRefused)
    EXPECT_NE(error_of(source).find("template line 1: "), std::string::npos) << source << error_of(source);
  EXPECT_NE(error_of("a\n\n{{ nope.x }}").find("line 3: 'nope' is undefined"), std::string::npos);
  EXPECT_NE(error_of("{{ raise_exception('no such role') }}").find("no such role"), std::string::npos);
}

TEST(Jinja, GenerationBlocksAreTransparentAndReportTheirBytes) {
  const auto out = render(
      "a{% generation %}\u00e9{{ xs[0] }}{% endgeneration %}b{% for x in xs %}{% generation %}{{ x }};{% endgeneration "
      "%}{% endfor %}");
  EXPECT_EQ(out.text, "a\u00e93b3;1;2;");
  const std::vector<std::pair<size_t, size_t>> expected = {{1, 4}, {5, 7}, {7, 9}, {9, 11}};
  EXPECT_EQ(out.generation, expected);
}

TEST(Jinja, TheDateIsTheCallers) {
  EXPECT_EQ(render("{{ strftime_now('%d %B %Y, %a') }}").text, "15 January 2025, Wed");
}

TEST(Jinja, HostileTemplatesEndInAnError) {
  const std::string many(20000, '('), minus(20000, '-');
  std::string blocks, sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}", sum += " + 1";
  for (const std::string& source : {
           std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
           std::string("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
           std::string("{% set ns = namespace(s='x') %}{% for a in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor "
                       "%}{{ ns.s }}"),
           std::string("{% set ns = namespace(l=[1]) %}{% for a in range(90) %}{% set ns.l = [ns.l, ns.l] %}{% endfor "
                       "%}{{ ns.l }}"),
           std::string("{% set ns = namespace(l=[1]) %}{% for a in range(900) %}{% set ns.l = [ns.l] %}{% endfor %}{{ "
                       "ns.l|tojson }}"),
           std::string(
               "{% set ns = namespace(l=[1]) %}{% for a in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"),
           std::string("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
           std::string("{{ ('x' * 60000000).replace('', 'yyyyyyyyyy') }}"),
           std::string("{{ 'x' * 9000000000 }}"),
           std::string("{{ 9223372036854775807 + 1 }}"),
           std::string("{{ -9223372036854775807 - 2 }}"),
           std::string("{{ '' | center(9000000000) }}"),
           "{{ " + many + " }}",
           "{{ " + many,
           "{{ " + minus + "1 }}",
           sum + " }}",
           blocks,
       }) {
    EXPECT_NE(error_of(source), "") << source.substr(0, 100);
  }
}

TEST(Jinja, ANamespaceMayHoldItself) {
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.me = n %}{{ n.me.me is sameas n }}").text, "True");
}

}  // namespace hone
