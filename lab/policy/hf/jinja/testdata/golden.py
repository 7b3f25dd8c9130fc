"""Makes golden.json: what transformers' Jinja renders. Run with transformers 5.23.0 and Jinja2 3.1.6:

    python golden.py > golden.json

With files of templates it renders those instead: docs/DEPENDENCIES.md compares TRL's.
"""
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

MESSAGES = [{"role": "user", "content": " a\n"}, {"role": "assistant", "content": "é<b>\"x\""}]

TEMPLATES = r"""
{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 1.5 + 1 }} {{ 4 / 2 }} {{ - 3 + 1 }}
{{ 'a' + 'b' ~ 1 ~ none ~ true ~ 1.0 }}{{ 'x' * 3 }}{{ [1] + ['a', none] }}{{ {'a': 'it\'s', 'b': [true]} }}
{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'cat' }}{{ 4 not in [1, 2] }}{{ not 1 == 1 }}{{ 'b' in {'b': 1} }}{{ 1 == 1.0 }}
{{ 'x' if false }}|{{ 'x' if 1 else 'y' }}|{{ 1 and 0 or 'z' }}|{{ none or [] }}|{{ a if b is defined else 'c' if 0 else 'd' }}
{{ missing }}|{{ missing.attribute }}
{{ missing is defined }}{{ missing | default('d') }}{{ '' | default('d') }}{{ '' | default('d', true) }}{{ missing|length }}
{{ messages[0].content | trim }}|{{ messages[-1]['role'] }}|{{ messages[5] }}|{{ messages|length }}|{{ messages[0].nothing }}
{{ messages | tojson }}{{ messages[1] | tojson(indent=2) }}{{ {'k': 'a\tb\x01'} | tojson }}
{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ m.role }}{{ loop.revindex0 }},{% endfor %}
{% for m in messages if m.role == 'user' %}{{ loop.length }}{% else %}none{% endfor %}{% for x in [] %}x{% else %}none{% endfor %}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}
{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}{{ range(3)|list }}{{ range(5, 1, -2)|list }}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% set a, b = 'pq' %}{{ b }}{{ a }}
{% set ns = namespace(x=1, y='q') %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}
{% set t %} in {{ 1 }} {% endset %}[{{ t }}]{% if true %}{% set q = 3 %}{% endif %}{{ q }}
{% macro f(a, b='d', c=none) %}({{ a }}{{ b }}{{ c }}){% endmacro %}{{ f(1) }}{{ f(1, c=2) }}{{ f() }}
{{ ' ab '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxa'.lstrip('x') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a  b '.split() }}|{{ 'a,b'.split(',')[-1] }}
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'aXb'.lower() }}{{ 'aBC'.capitalize() }}{{ 'abab'.replace('a', 'z', 1) }}{{ 'abc'.find('c') }}{{ 'abc'.find('x') }}
{{ 'hello'[1:3] }}{{ 'hello'[::-1] }}{{ [1, 2, 3][1:] }}{{ [1, 2, 3][:-1] }}{{ [1, 2, 3][::-2] }}{{ 'é日'[1] }}{{ [1, 2, 3][-9:9] }}
{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.keys() | list }}{{ ({'a': 1} | items | list)[0] | join }}{{ {'get': 5}['get'] }}
{{ [1, 2] | join('-') }}{{ messages | join(',', attribute='role') }}{{ [3, 1] | first }}{{ [3, 1] | last }}{{ 'ab' | list }}{{ [] | first }}|{{ 'abc' | reverse }}
{{ messages | map(attribute='role') | list }}{{ ['a', 'b'] | map('upper') | join }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='content') | first }}{{ [0, 1] | select | list }}{{ [1, 2] | reject('odd') | list }}
{{ 'a' is string }}{{ 1 is string }}{{ 1 is number }}{{ true is number }}{{ {} is mapping }}{{ [] is sequence }}{{ 'a' is sequence }}{{ 1 is iterable }}{{ none is none }}{{ 1 is not none }}{{ 4 is divisibleby 2 }}{{ 1 is in [1] }}{{ 1 is odd }}{{ false is false }}
{{ "a\n\"b\"\t\u00e9\\ \x41 \q" 'c' }}
a  {%- if true -%}  b  {%- endif %}  c
  {% if true %}NEWLINE    xNEWLINE    {% endif %}NEWLINEy {# note #}NEWLINE  {# note #}NEWLINEz
  {%+ if true %}NEWLINEx{% endif +%}NEWLINEy
  {{ 1 }}NEWLINE  {{- 2 -}}  NEWLINE3
a{% if true %} {% endif %} NEWLINENEWLINE
{{ 'a' | nofilter }}
{{ raise_exception('no') }}
{% if false %}{{ x.y.z }}{{ none() }}{% endif %}ok
{{ 1 / 0 }}
{{ 'a' + 1 }}
{{ messages.append(1) }}
{{ (1, 2)[0] }}{{ ((1)) }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {'b': {'c': 2}}}.a.b.c }}{{ () | length }}
{% generation %}{{ 'kept' }}{% endgeneration %}
{{ 1 if
 true
 else 2 }}
{{ 'it' "is" }}
{{ 3 | string + 'x' }}{{ '7' | int + 1 }}{{ 'x' | int }}{{ 2.7 | int }}{{ none | string }}{{ 100000000000000000000.0 }}{{ 0.00001 }}
{% for x in 'ab' %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.index0 }}{% endfor %}{{ loop is defined }}
{{ true }}{{ True }}{{ None }}{{ not none }}{{ 1 != 2 }}{{ 2 >= 2 }}{{ 'a' < 'b' }}{{ [1, [2]] == [1, [2]] }}{{ {'a': 1} == {'a': 1} }}
{{ dict(z=1, a=2) }}{{ dict({'b': 1, 'a': 0}, c=2, a=3) }}{% set ns = namespace({'x': 1, 'y': 0}, y=2) %}{{ ns.x }}{{ ns.y }}
{{ '2.7' | int }}|{{ ' 7 ' | int }}|{{ '-3.9' | int }}|{{ 'nan' | int(5) }}|{{ 'x' | int(default=6) }}|{{ 9007199254740991 }}
{{ [{'a': {'b': 1}}, {}] | map(attribute='a.b', default='d') | list }}{{ [{'a': [5]}] | map(attribute='a.0') | join }}
{{ [{'a': {'b': 1}}] | selectattr('a.b', 'eq', 1) | list | length }}{{ [{'a': {'b': 1}}] | join(attribute='a.b') }}
{{ messages | tojson(nothing=1) }}
{{ 'a' | replace('a', new='b', nothing=1) }}
{{ 'a'.upper(1) }}
{{ 'a' | upper(1) }}
{{ [1] | map(attribute='a', nothing=1) | list }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(nothing=1) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=1) }}
{{ 1 or 1 if 0 }}|{{ 0 or 2 and 0 or 3 }}|{{ [[1]][0][0] }}|{{ 'a' ~ 1 + 2 ~ 'b' }}|{{ 2 ** 3 ** 2 }}|{{ ' a ' | trim | upper is string }}
"""

sources = [line.replace("NEWLINE", "\n")
           for line in TEMPLATES.strip("\n").replace("\n true\n else", "NEWLINE true NEWLINE else").split("\n")]
rows = []
for source in [pathlib.Path(p).read_text() for p in sys.argv[1:]] or sources:
    try:
        rows.append({"template": source, "want": _compile_jinja_template(source).render(
            messages=MESSAGES, bos_token="<s>", add_generation_prompt=True, strftime_now=lambda _: "today")})
    except Exception as e:
        rows.append({"template": source, "error": str(e)})
print(json.dumps(rows, indent=1, ensure_ascii=False))
