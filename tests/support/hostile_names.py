"""Names as an attacker would choose them, for whatever shows names."""

NAMES = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "\"'><svg onload=window.hacked=3>",
    "{{ 7 * 7 }}{% raw %}",
    "line\u2028separator",
    "$\\frac{broken$",
    '_hidden & <g id="@0">',
)
