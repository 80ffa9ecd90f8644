"""Random statements about memory: blocks that a group owns, stages that a loop copies into, bytes with two elements, and arrays
in records and lists."""

from __future__ import annotations

from .expressions import INTS, SCALARS, STORAGE, Scope, W
from .form import PACKED, Form, Record
from .part_statements import PartStatements
from .values import carrier


class MemoryStatements(PartStatements):
    """Draws statements that `Statements` puts among the others, and the parameters that they need."""

    # Ownership.
    def take_ticket(self, s: Scope, groups: int, arrays: dict) -> tuple[list[str], list[str]]:
        """Arrays of which a group owns the row that its ticket says: parameters, and the statements that begin with them."""
        self.count("ownership by ticket")
        size = self.pick([1, 3])
        parameters = [f"tk: ts.Tensor[{size}, ts.i32]"]
        arrays["tk"] = ((size,), "zeros")
        before = self.name("i32", "t")
        body = [f"{before} = ts.tile.atomic_add(tk[0], 1)"]
        ticket = before
        if self.chance(0.3):
            # Rows from the last to the first.
            ticket = self.name("i32", "t")
            body.append(f"{ticket} = {groups - 1} - {before}")
        for dt in self.rng.sample(SCALARS + STORAGE, self.rng.randint(1, 3)):
            name = f"o_{dt}"
            arrays[name] = ((groups, W), dt)
            parameters.append(f"{name}: ts.Tensor[{groups}, {W}, ts.{dt}]")
            self.prefixes[name] = f"{ticket}, "
            s.arrays = {**s.arrays, name: dt}
            form = self.pick(["row", "all", "elements", "branch"])
            self.count(f"owned: {form}")
            whole = f"ts.tile.owned({name}[{ticket}, {self.pick([':', f'0:{W}'])}])"
            if form == "elements":
                j = self.name("i64", "j")
                body += [f"for {j} in {self.pick(['ts.static_range', 'range'])}({W}):", f"    ts.tile.owned({name}[{ticket}, {j}])"]
            elif form == "branch":
                body += [f"if {self.cond(s, 1)}:", f"    {whole}", "else:", f"    {whole}"]
            elif form == "all":
                half = self.rng.randint(1, W - 1)
                body += [f"ts.tile.owned({name}[{ticket}, 0:{half}])", f"ts.tile.owned({name}[{ticket}, {half}:{W}])"]
            else:
                body.append(whole)
        return parameters, body

    def s_own(self, s: Scope, depth: int) -> list[str]:
        """A promise about what the group alone touches anyhow, or a store that makes one."""
        names = [n for n in s.arrays if n not in self.shared]
        name = self.pick(names) if names else ""
        if not name or self.in_helper:
            return self.s_assign(s, depth)
        pre = self.pre(s, name)
        form = self.pick(["owned", "owned", "unique", "unique mask", "unique scatter"])
        n = self.pick([2, 3, 4, 5])
        dt = s.arrays[name]
        if form == "unique scatter" and (dt not in SCALARS or pre and not self.has("index_beside_id")):
            form = "unique"
        self.count(f"ownership: {form}")
        if form == "owned":
            return [f"ts.tile.owned({name}[{pre}{self.pick([':', self.span(n), str(self.rng.randint(0, W - 1))])}])"]
        value = self.tile(s, carrier(dt), n, 2)
        if form == "unique":
            return [f"ts.tile.store({name}[{pre}{self.span(n)}], {value}, unique=True)"]
        if form == "unique scatter":
            at = self.positions(s, n if n != 5 else 4, unique=True)
            value = self.tile(s, dt, n if n != 5 else 4, 1)
            return [f"ts.tile.store({name}, ({pre}{at}), {value}, unique=True)" if pre else f"ts.tile.store({name}, {at}, {value}, unique=True)"]
        d = self.pick(SCALARS)
        mask = f"{self.tile(s, d, n, 1)} {self.pick(['<', '>=', '!='])} {self.tile(s, d, n, 0)}"
        return [f"ts.tile.store({name}[{pre}{self.span(n)}], {value}, mask={mask}, unique=True)"]

    # Stages by hand.
    def staged(self, s: Scope, source: str, dt: str, rank2: bool) -> list[str]:
        """A loop that copies stages ahead of its reads; what it reads is summed and stored."""
        many, wide = self.rng.randint(2, 4), self.pick([2, 4])
        ahead = self.rng.randint(1, many - 1)
        start = self.pick([0, 0, 1, 3])
        pre = "p, " if rank2 else ""
        self.number += 1
        st, j, acc = f"st{self.number}", self.name("i64", "j"), f"acc{self.number}"
        kind = carrier(dt)
        out = [f"{st} = ts.tile.alloc_shared(({many}, {wide}), ts.{dt})"]
        groups = self.pick([None, None, "before", "behind"])
        form = self.pick(["range", "range", "steps", "carried", "while"])
        late = self.chance(0.25)  # the copy stands behind the read
        last = self.pick([str(self.rng.randint(0, 6)), self.bound(s), "n_"])
        out.append(f"n_{j} = {last if last != 'n_' else self.rng.randint(2, 5)}")
        limit = f"n_{j}"
        guard = self.chance(0.4)
        shift = self.pick([0, 0, 0, 0, 1])  # 1: other copies than those of the prologue
        self.count(f"stages by hand: {form}{', waits by count' if groups else ''}{', guarded' if guard else ''}{', copied behind the read' if late else ''}")

        def copy(stage: str, number: str) -> str:
            at = f"({number}) * {wide}" + (f" + {start}" if start else "")
            return f"ts.tile.cp_async({st}[{stage}], {source}[{pre}{at}:{at} + {wide}])"

        q = self.name("i64", "q")
        fill = [copy(q, q), *(["ts.tile.cp_commit_group()"] if groups else [])]
        if self.chance(0.4):
            for k in range(ahead):
                out += [copy(str(k), str(k)), *(["ts.tile.cp_commit_group()"] if groups else [])]
        else:
            out += [f"for {q} in {self.pick(['range', 'ts.static_range'])}({ahead}):", *("    " + line for line in fill)]
        out.append(f"{acc} = ts.tile.zeros(({wide},), ts.{kind})")
        number, head, tail = j, [f"for {j} in range({limit}):"], []
        if form == "steps":
            number, head = f"({j} // {wide})", [f"for {j} in range(0, {limit} * {wide}, {wide}):"]
        stage_read, stage_write = f"{number} % {many}", f"({number} + {ahead}) % {many}"
        if form == "carried":
            r, w = self.name("i64", "r"), self.name("i64", "r")
            out += [f"{r} = 0", f"{w} = {ahead}"]
            stage_read, stage_write = r, w
            tail = [f"{r} = ({r} + 1) % {many}", f"{w} = ({w} + 1) % {many}"]
        elif form == "while":
            out.append(f"{j} = 0")
            head, tail = [f"while {j} < {limit}:"], [f"{j} += 1"]
        ahead_of = f"{number} + {ahead}" + (" + 1" if shift else "")
        write = [copy(stage_write, ahead_of)]
        if guard:
            write = [f"if {number} + {ahead} < {limit}:", f"    {write[0]}"]
        if groups:
            write.append("ts.tile.cp_commit_group()")
        wait = []
        if groups:
            left = ahead - 1 if groups == "before" or late else ahead
            wait = [f"ts.tile.cp_wait_group({self.pick([left, left, 0])})"]
        if self.chance(0.3):
            wait.append("ts.tile.barrier()")
        value = f"{st}[{stage_read}]"
        if self.chance(0.2):
            value = f"({value} + {st}[{stage_read}])"
        read = [f"{acc} = {acc} {self.pick(['+', '-', '*'])} {value}" if self.chance(0.5) else f"{acc} = {acc} * {self.pick(['3', '2'])} + {value}"]
        mine = [n for n, d in s.arrays.items() if n not in self.shared and d == kind]
        if mine and self.chance(0.4):
            target = self.pick(mine)
            read.append(f"{target}[{self.pre(s, target)}{self.span(wide)}] = {st}[{stage_read}]")
        if late:
            body = [*wait, *read, *write, *tail]
        elif groups == "before":
            body = [*wait, *write, *read, *tail]
        else:
            body = [*write, *wait, *read, *tail]
        out += [*head, *self.indent(body)]
        self.statements += 6
        if mine:
            target = self.pick(mine)
            out.append(f"{target}[{self.pre(s, target)}{self.span(wide)}] = {acc}")
        return out

    # Two elements a byte.
    def s_packed(self, s: Scope, depth: int) -> list[str]:
        name, dt = self.pick(self.packed.items())
        if self.in_helper or "packed" in self.without:
            return self.s_assign(s, depth)
        kind = carrier(PACKED[dt])
        pre = s.prefix
        even = 2 * self.rng.randint(0, W // 2 - 1)
        n = self.pick([k for k in (2, 4, 8) if even + k <= W])
        span = self.pick([f"{even}:{even + n}"] if (even, n) != (0, W) else [":", f"0:{W}"])
        form = self.pick(["element", "slice", "store", "gather"]) if not self.lane else "element"
        self.count(f"packed {dt[:3].strip()}: {form}")
        if form == "store":
            return [f"{name}[{pre}{span}] = {self.tile(s, kind, n, 2)}"]
        if form == "element":
            target = self.name(kind)
            value = f"({name}[{pre}{self.index(s)}] * {self.pick(['1', '2', '3'])})"
            s.names[target] = kind
            return [f"{target} = {value}"]
        if form == "gather" and pre and not self.has("index_beside_id"):
            form = "slice"
        at = self.positions(s, n if n != 2 else 4, False) if form == "gather" else span
        count = (n if n != 2 else 4) if form == "gather" else n
        value = f"({name}[{pre}{at}] * {self.pick(['1', '2', '3'])})"
        return [f"{self.tile_name(s, kind, count)} = {value}"]

    # Records and lists.
    def arrange(self, s: Scope, parameters: list[str], arrays: dict) -> tuple[list[str], list[str], Form]:
        """Puts some of the arrays into a record, and adds a list of arrays: the classes, the parameters, and how calls are made."""
        rows = dict(line.split(": ", 1) for line in parameters)
        given = list(rows)
        moved = [n for n in given if n.startswith("a_") and n != "a_bool" and self.chance(0.4)]
        head: list[str] = []
        if moved and self.chance(0.7):
            inner = moved[: self.rng.randint(0, len(moved) - 1)] if self.chance(0.4) else []
            self.count("record in a record" if inner else "record")
            self.record(s, head, "Q", inner, rows, arrays, "r.q.") if inner else None
            rest = [n for n in moved if n not in inner]
            fields: dict = self.record(s, head, "R", rest, rows, arrays, "r.", bool(inner))
            if inner:
                fields["q"] = Record("Q", {n: f"r.q.{n}" for n in inner})
            given = [n for n in given if n not in moved]
            place = self.rng.randint(0, len(given))
            given.insert(place, "r")
            rows["r"] = "R"
            self.arguments["r"] = Record("R", fields)
        if self.chance(0.5):
            dt, n = self.pick(SCALARS), self.rng.randint(1, 3)
            shape, axes = next((shape, ", ".join(map(str, shape))) for name, (shape, _) in arrays.items() if name.rpartition(".")[2].startswith("a_"))
            form = self.pick(["list", "list", "tuple"])
            self.count(f"{form} of arrays")
            one = f"ts.Tensor[{axes}, ts.{dt}]"
            rows["xs"] = f"list[{one}]" if form == "list" else f"tuple[{', '.join([one] * n)}]"
            names = [f"xs[{k}]" for k in range(n)]
            for name in names:
                arrays[name] = (shape, dt)
                s.arrays = {**s.arrays, name: dt}
            given.insert(self.rng.randint(0, len(given)), "xs")
            self.arguments["xs"] = list(names)
            self.listed = (n, dt)
        return head, [f"{name}: {rows[name]}" for name in given], Form([self.arguments.get(name, name) for name in given])

    def record(self, s: Scope, head: list[str], cls: str, names: list[str], rows: dict, arrays: dict, path: str, has_inner: bool = False) -> dict:
        """The class of a record with these arrays, which are named by their path from now on."""
        lines, fields = [], {}
        for name in names:
            lines.append(f"{name}: {rows[name]}")
            arrays[path + name] = arrays.pop(name)
            fields[name] = path + name
            if name in s.arrays:
                s.arrays = {path + n if n == name else n: d for n, d in s.arrays.items()}
        if path == "r.":
            if has_inner:
                lines.append("q: Q")
            if self.chance(0.5):
                dt = self.pick(SCALARS)
                lines.append(f"s: ts.{dt}")
                fields["s"] = (dt, self.rng.randint(0, 9) if dt in INTS else self.pick([0.5, -2.0, 3.0]))
                s.names["r.s"] = dt
                s.fixed.add("r.s")
                self.count("scalar in a record")
            if self.chance(0.5):
                lines.append("K: int")
                fields["K"] = self.rng.randint(0, 9)
                self.constants.append("r.K")
                self.count("constant in a record")
            if self.chance(0.5):
                one = f"ts.Tensor[{W}, ts.i32]"
                there = self.chance(0.5)
                lines.append(f"o: {one} | None")
                fields["o"] = "r.o" if there else None
                if there:
                    arrays["r.o"] = ((W,), "i32")
                self.optional = "r.o"
        head += ["@ts.struct", f"class {cls}:", *("    " + line for line in lines), ""]
        return fields

    def s_optional(self, s: Scope, depth: int) -> list[str]:
        """A branch on whether an array is given: only the one that holds is compiled."""
        if self.in_helper or not self.optional:
            return self.s_assign(s, depth)
        self.count("branch on an optional array")
        name = self.name("i32")
        read = f"{self.optional}[{self.index(s)}]"
        there, absent = [f"{name} = {read}"], [f"{name} = ts.tile.cast({self.leaf(s, 'i32')}, ts.i32)"]
        form = self.pick(["is", "is not", "if else", "and"])
        if form == "if else":
            s_name = f"{name} = {read} if {self.optional} is not None else ts.tile.cast({self.leaf(s, 'i32')}, ts.i32)"
            s.names[name] = "i32"
            return [s_name]
        if form == "and":
            out = [absent[0], f"if {self.optional} is not None and {read} > {self.leaf(s, 'i32')}:", f"    {name} = {read}"]
            s.names[name] = "i32"
            return out
        s.names[name] = "i32"
        if form == "is":
            return [f"if {self.optional} is None:", *self.indent(absent), "else:", *self.indent(there)]
        return [f"if {self.optional} is not None:", *self.indent(there), "else:", *self.indent(absent)]

    def s_listed(self, s: Scope, depth: int) -> list[str]:
        """A loop over a list of arrays, which is unrolled."""
        if self.in_helper or not self.listed:
            return self.s_assign(s, depth)
        n, dt = self.listed
        self.number += 1
        x, j = f"x{self.number}", self.name("i64", "j")
        heads = [f"{x} in xs", f"{x} in xs[{self.rng.randint(0, n)}:]", f"{j} in ts.static_range(len(xs))"]
        if self.has("python_iterators"):
            heads += [f"{j}, {x} in enumerate(xs)", f"{x} in reversed(xs)"]
        head = self.pick(heads)
        inner = s.copy()
        if x in head.split(" in ")[0]:
            inner.arrays = {**s.arrays, x: dt}
        if j in head.split(" in ")[0]:
            inner.known.append(j)
        place = f"xs[{j}]" if "static_range" in head else x
        inner.arrays = {**inner.arrays, place: dt}
        self.count("loop over a list of arrays")
        self.loops.append("unrolled loop")
        first = f"{place}[{s.prefix}{self.index(inner)}] {self.pick(['=', '+='])} {self.expr(inner, dt, 2)}"
        body = [first, *self.block(inner, self.rng.randint(0, 2), depth - 1)]
        self.loops.pop()
        return [f"for {head}:", *self.indent([line for line in body if line != "pass"])]
