"""Network slots: a namespace, a veth pair and a tap per sandbox, pooled; and the rules that fence guests in."""
