//! `tessera layout`: a layout's text, what it means for threads and accesses, and its picture.
//! All that a user wrote is checked here, for the constructors of layouts take only what makes
//! sense and panic otherwise.

use tessera_diag::{Code, Diagnostic};
use tessera_layout::{
    Cost, In, Layout, LayoutError, Move, Shared, cheapest, conversion, cost_of, draw, draw_shared,
};

/// What a picture is drawn of, at most; far beyond what a multiprocessor holds.
const MOST_DIMS: usize = 8;
const MOST_ELEMENTS: u64 = 1 << 18;
/// Elements with all their copies and padding, in all threads.
const MOST_HELD: u64 = 1 << 20;
const MOST_BYTES: u64 = 1 << 24;
const MOST_WARPS: u32 = 32;
const MOST_CTAS: u32 = 16;
const MOST_ELEMENT_BYTES: u32 = 16;
const MOST_VECTOR: u32 = 128;

/// A constructor and the options that it takes.
type Form = (&'static str, &'static [&'static str]);
const FORMS: [Form; 5] = [
    (
        "coalesced",
        &["shape", "contiguous", "vector", "warps", "ctas", "cta-dim", "bytes", "convert"],
    ),
    ("mma_acc", &["shape", "warps", "blocks", "bits", "bytes", "convert"]),
    ("mma_a", &["shape", "warps", "blocks", "k", "bits", "bytes", "convert"]),
    ("mma_b", &["shape", "warps", "blocks", "k", "bits", "bytes", "convert"]),
    ("shared", &["shape", "bytes", "convert"]),
];
const TEXT: Form = ("a layout's text", &["shape", "bytes", "convert"]);
const EXAMPLE: &str = "tessera layout coalesced --shape 128x64";
const SHARED_EXAMPLE: &str =
    "tessera layout shared \"[order 1,0; swizzle 4,3,3]\" --shape 64x64 --bytes 2";

type Reported<T> = Result<T, Diagnostic>;

/// Describes the layout that the words and the options name: its canonical text, facts, and the
/// picture. Options are names without dashes, and what was written after them; `blocks` has nothing.
pub fn describe(words: &[String], options: &[(String, String)]) -> Reported<String> {
    let words: Vec<&str> = words.iter().map(|word| bare(word)).collect();
    let (what, rest) = match words.split_first() {
        Some((what, rest)) if !what.is_empty() => (*what, rest),
        _ => return Err(missing("a layout").help(format!("write `{EXAMPLE}`"))),
    };
    let form = match FORMS.iter().find(|form| form.0 == what) {
        Some(form) => *form,
        None if what.starts_with('[') => TEXT,
        None => {
            let names = FORMS.map(|form| form.0).join(", ");
            let error = argument(&format!("a layout in brackets, or one of {names}"), what);
            return Err(error.help(format!("write `{EXAMPLE}`")));
        }
    };
    if let Some((name, _)) = options.iter().find(|(name, _)| !form.1.contains(&name.as_str())) {
        let takes: Vec<String> = form.1.iter().map(|name| format!("--{name}")).collect();
        let error = argument(&format!("options that {} takes", form.0), &format!("--{name}"));
        return Err(error.help(format!("it takes {}", takes.join(", "))));
    }
    let requested = Requested { options };
    match (form.0, rest) {
        ("shared", [text]) => describe_shared(text, &requested),
        ("shared", []) => {
            Err(missing("the text of shared memory").help(format!("write `{SHARED_EXAMPLE}`")))
        }
        (_, []) => describe_registers(what, &requested),
        (_, [.., extra]) => {
            Err(argument("one layout", extra).help("put the layout's text in quotes"))
        }
    }
}

fn argument(expected: &str, got: &str) -> Diagnostic {
    Diagnostic::new(Code::E_ARGUMENT, format!("expected {expected}, got `{got}`"))
}

fn missing(expected: &str) -> Diagnostic {
    Diagnostic::new(Code::E_ARGUMENT, format!("expected {expected}, got nothing"))
}

/// A layout's text without the `#` that begins it in the types of Staged IR.
fn bare(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('#').filter(|text| text.starts_with('[')).unwrap_or(text)
}

/// The options as they were written.
struct Requested<'o> {
    options: &'o [(String, String)],
}

impl Requested<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|option| option.0 == name).map(|option| option.1.trim())
    }

    /// Extents or counts, as in `64x32`.
    fn list(&self, name: &str) -> Reported<Option<Vec<u32>>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let numbers: Option<Vec<u32>> = text.split('x').map(number).collect();
        match numbers {
            Some(numbers) if numbers.iter().all(|&n| n > 0) => Ok(Some(numbers)),
            _ => Err(argument(&format!("positive integers joined by `x` in --{name}"), text)
                .help(format!("write them as in `--{name} 64x32`"))),
        }
    }

    fn one(&self, name: &str, expected: &str, fits: impl Fn(u32) -> bool) -> Reported<Option<u32>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match number(text) {
            Some(number) if fits(number) => Ok(Some(number)),
            _ => Err(argument(&format!("{expected} in --{name}"), text)),
        }
    }

    fn power_of_two(&self, name: &str, most: u32) -> Reported<Option<u32>> {
        let expected = format!("a power of two up to {most}");
        self.one(name, &expected, |n| n.is_power_of_two() && n <= most)
            .map_err(|error| error.help(near_powers(self.text(name).and_then(number), most)))
    }

    fn dim(&self, name: &str, rank: usize) -> Reported<Option<usize>> {
        let expected = format!("a dim from 0 to {}", rank - 1);
        let dim = self.one(name, &expected, |n| (n as usize) < rank)?;
        Ok(dim.map(|dim| dim as usize))
    }

    fn shape(&self) -> Reported<Vec<u32>> {
        let shape = self
            .list("shape")?
            .ok_or_else(|| missing("the tile's shape").help("write it as in `--shape 64x32`"))?;
        if shape.len() > MOST_DIMS {
            let got = format!("{} dims", shape.len());
            return Err(argument(&format!("at most {MOST_DIMS} dims in --shape"), &got));
        }
        elements(&shape, "--shape")?;
        Ok(shape)
    }

    fn bytes(&self) -> Reported<Option<u32>> {
        self.power_of_two("bytes", MOST_ELEMENT_BYTES)
    }

    /// Warps along the two dims of an accumulator.
    fn warps(&self) -> Reported<[u32; 2]> {
        let Some(warps) = self.list("warps")? else { return Ok([2, 2]) };
        let powers = warps.iter().all(|n| n.is_power_of_two() && *n <= MOST_WARPS);
        match warps[..] {
            [rows, cols] if powers && rows * cols <= MOST_WARPS => Ok([rows, cols]),
            _ => {
                let expected =
                    format!("two powers of two, together at most {MOST_WARPS} warps, in --warps");
                Err(argument(&expected, self.text("warps").unwrap_or_default())
                    .help("the warps along rows and along columns, as in `--warps 2x2`"))
            }
        }
    }
}

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

fn near_powers(got: Option<u32>, most: u32) -> String {
    let near = got.map_or(most, |n| if n == 0 { 1 } else { (1 << n.ilog2()).min(most) });
    format!("the nearest that fits is {near}")
}

/// Refuses tiles that no machine holds.
fn elements(shape: &[u32], place: &str) -> Reported<()> {
    // Eight factors below 2^32 may be more than a word.
    let count = shape.iter().fold(1u64, |count, &n| count.saturating_mul(n.into()));
    if count > MOST_ELEMENTS {
        let error =
            argument(&format!("a tile of at most {MOST_ELEMENTS} elements in {place}"), &by(shape));
        return Err(error.help("draw the tile of one group, not the whole array"));
    }
    Ok(())
}

fn describe_registers(what: &str, requested: &Requested<'_>) -> Reported<String> {
    let shape = requested.shape()?;
    let (layout, elem_bytes) = match what {
        "coalesced" => (coalesced(&shape, requested)?, 4),
        "mma_acc" | "mma_a" | "mma_b" => fragment(what, &shape, requested)?,
        text => (read(text, &shape)?, 4),
    };
    small_enough(&layout)?;
    let elem_bytes = requested.bytes()?.unwrap_or(elem_bytes);
    let mut out = format!("{layout}\n\n{}", facts(&layout));
    if let Some(text) = requested.text("convert") {
        out += &converted(&layout, text, elem_bytes)?;
    }
    let cta = if layout.ctas() > 1 { "C<cta>." } else { "" };
    let copies = if replicas(&layout).is_empty() { "" } else { "; * where others hold copies" };
    out += &format!("\n{cta}T<thread>:<register>{copies}\n{}", draw(&layout));
    Ok(out)
}

fn coalesced(shape: &[u32], requested: &Requested<'_>) -> Reported<Layout> {
    let rank = shape.len();
    let contiguous = requested.dim("contiguous", rank)?.unwrap_or(rank - 1);
    let vector = requested.power_of_two("vector", MOST_VECTOR)?.unwrap_or(8);
    let warps = requested.power_of_two("warps", MOST_WARPS)?.unwrap_or(4);
    let ctas = requested.power_of_two("ctas", MOST_CTAS)?.unwrap_or(1);
    let cta_dim = requested.dim("cta-dim", rank)?;
    Ok(Layout::coalesced(shape, Some(contiguous), vector, warps, ctas, cta_dim))
}

/// A fragment of matrix instructions, and the bytes of its elements.
fn fragment(what: &str, shape: &[u32], requested: &Requested<'_>) -> Reported<(Layout, u32)> {
    let &[rows, cols] = shape else {
        let error = Diagnostic::new(
            Code::E_SHAPE_MISMATCH,
            format!("expected an accumulator of 2 dims for {what}, got {}", by(shape)),
        );
        return Err(error.help("write its rows and columns, as in `--shape 64x64`"));
    };
    let warps = requested.warps()?;
    let bits = requested.one("bits", "4, 8, 16, 32 or 64", |n| [4, 8, 16, 32, 64].contains(&n))?;
    let bits = bits.unwrap_or(16);
    let k = requested.one("k", "a positive integer", |n| n > 0)?.unwrap_or(32);
    let doubles = bits == 64;
    let shape = [rows, cols];
    let acc = match (doubles, requested.text("blocks").is_some()) {
        (false, false) => Layout::mma_acc(&shape, warps),
        (false, true) => Layout::mma_acc_blocks(&shape, warps),
        (true, false) => Layout::mma_acc_f64(&shape, warps),
        (true, true) => Layout::mma_acc_f64_blocks(&shape, warps),
    };
    let bytes = (bits / 8).max(1);
    Ok(match what {
        "mma_a" => {
            elements(&[rows, k], "--shape and --k")?;
            (if doubles { Layout::mma_a_f64(&acc, k) } else { Layout::mma_a(&acc, k, bits) }, bytes)
        }
        "mma_b" => {
            elements(&[k, cols], "--shape and --k")?;
            (if doubles { Layout::mma_b_f64(&acc, k) } else { Layout::mma_b(&acc, k, bits) }, bytes)
        }
        _ => (acc, bytes.max(4)),
    })
}

fn read(text: &str, shape: &[u32]) -> Reported<Layout> {
    let text = bare(text);
    let layout = Layout::parse(text, shape).map_err(|error| reported(&error, text, shape))?;
    small_enough(&layout)?;
    Ok(layout)
}

/// Refuses what would take long to describe. Bits are counted, for numbers may be too large.
fn small_enough(layout: &Layout) -> Reported<()> {
    let bits = |input| layout.bases(input).len() as u32;
    for (input, name, most) in [(In::Warp, "warps", MOST_WARPS), (In::Cta, "ctas", MOST_CTAS)] {
        if bits(input) > most.ilog2() {
            let got = format!("2^{} of them", bits(input));
            return Err(argument(&format!("at most {most} {name}"), &got));
        }
    }
    let held = u64::from(layout.regs()) * u64::from(layout.threads()) * u64::from(layout.ctas());
    if held > MOST_HELD {
        let expected = format!("at most {MOST_HELD} registers in all threads together");
        return Err(argument(&expected, &held.to_string()));
    }
    Ok(())
}

fn reported(error: &LayoutError, text: &str, shape: &[u32]) -> Diagnostic {
    let (code, help) = match error {
        LayoutError::Text { .. } => (
            Code::E_SYNTAX,
            "write it as Staged IR does: `[reg 0,1; lane 0,2 0,4 1,0 2,0 4,0; repeat 2,1]` for \
             registers, `[order 1,0; swizzle 4,3,3]` for shared memory",
        ),
        LayoutError::Rank { .. } | LayoutError::Order { .. } => {
            (Code::E_SHAPE_MISMATCH, "vectors, repeats and orders have a number for each dim")
        }
        LayoutError::Repeat { .. } => (
            Code::E_SHAPE_MISMATCH,
            "repeats fill the shape; where the text is right, --shape is another tile's",
        ),
        LayoutError::Lanes { .. } => {
            (Code::E_SYNTAX, "a warp has 32 lanes: five vectors, zeros where lanes hold copies")
        }
        LayoutError::NotCovered { .. } => (
            Code::E_SYNTAX,
            "some position below the highest is in no register: a vector is missing",
        ),
        LayoutError::EmptyDim { .. } | LayoutError::TooLarge => {
            (Code::E_ARGUMENT, "draw the tile of one group")
        }
    };
    Diagnostic::new(code, error.to_string())
        .note(format!("in `{text}` for a tile of {}", by(shape)))
        .help(help)
}

fn row(name: &str, value: &str) -> String {
    format!("{name:<12}{value}\n")
}

fn by(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join("x")
}

fn count(number: u32, name: &str) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

fn facts(layout: &Layout) -> String {
    let mut tile = format!("{}, a box of {}", by(layout.shape()), by(layout.box_extents()));
    if layout.repeat().iter().any(|&n| n > 1) {
        tile += &format!(" repeated {}", by(layout.repeat()));
    }
    let mut threads = format!("{} in {}", layout.threads(), count(layout.warps(), "warp"));
    if layout.ctas() > 1 {
        threads += &format!(", of each of {} ctas", layout.ctas());
    }
    let vectors: Vec<String> = (0..layout.rank())
        .map(|dim| format!("{} along dim {dim}", layout.run_along(dim)))
        .collect();
    let replicas = replicas(layout);
    let copies = if replicas.is_empty() {
        "none".to_owned()
    } else {
        let times = 1u64 << replicas.iter().map(|(_, bits)| bits.len()).sum::<usize>();
        let bits: Vec<String> = replicas
            .iter()
            .map(|(name, bits)| {
                let several = if bits.len() == 1 { "" } else { "s" };
                let bits: Vec<String> = bits.iter().map(usize::to_string).collect();
                format!("{name} bit{several} {}", bits.join(","))
            })
            .collect();
        format!("{}: each element is held {times} times", bits.join(", "))
    };
    let product = |numbers: &[u32]| numbers.iter().map(|&n| u64::from(n)).product::<u64>();
    let whole = product(layout.box_extents()) * product(layout.repeat());
    let padding = match whole - product(layout.shape()) {
        0 => "none".to_owned(),
        padding => format!("{padding} of {whole} positions"),
    };
    [
        row("tile", &tile),
        row("registers", &format!("{} in each thread", layout.regs())),
        row("threads", &threads),
        row("vector", &vectors.join(", ")),
        row("copies", &copies),
        row("padding", &padding),
    ]
    .concat()
}

/// The bits of each input that say nothing about the place, where there are any.
fn replicas(layout: &Layout) -> Vec<(&'static str, Vec<usize>)> {
    let (lane, warp, cta) = layout.replicas();
    [("register", layout.reg_replicas()), ("lane", lane), ("warp", warp), ("cta", cta)]
        .into_iter()
        .map(|(name, bits)| (name, (0..bits.len()).filter(|&bit| bits[bit]).collect::<Vec<_>>()))
        .filter(|(_, bits)| !bits.is_empty())
        .collect()
}

/// How data would go to another layout, as the compiler does it.
fn converted(from: &Layout, text: &str, elem_bytes: u32) -> Reported<String> {
    let to = read(text, from.shape())?;
    if (from.warps(), from.ctas()) != (to.warps(), to.ctas()) {
        let threads = |layout: &Layout| {
            format!("{} in {}", count(layout.warps(), "warp"), count(layout.ctas(), "cta"))
        };
        let message =
            format!("expected --convert to a layout of {}, got {}", threads(from), threads(&to));
        return Err(Diagnostic::new(Code::E_SHAPE_MISMATCH, message)
            .help("a conversion keeps the threads: threads without work hold copies"));
    }
    let way = conversion(from, &to);
    let cost = |way: &Move| cost_text(&cost_of(way, from, &to, elem_bytes));
    let mut out = row("to", &to.to_string()) + &row("move", way_text(&way));
    out += &row("cost", &format!("{}, for elements of {elem_bytes} bytes", cost(&way)));
    let cheaper = cheapest(from, &to, elem_bytes);
    if cheaper != way {
        out += &row("cheaper", &format!("{}: {}", way_text(&cheaper), cost(&cheaper)));
    }
    Ok(out)
}

fn way_text(way: &Move) -> &'static str {
    match way {
        Move::Nothing => "nothing: every register already holds its element",
        Move::Registers(_) => "between the registers of each thread",
        Move::Shuffle { .. } => "between the lanes of each warp, by shuffles",
        Move::Shared { across: In::Reg | In::Lane } => {
            "between the lanes of each warp, through shared memory"
        }
        Move::Shared { across: In::Warp } => "between the warps of a cta, through shared memory",
        Move::Shared { across: In::Cta } => "between the ctas of a cluster, through shared memory",
    }
}

fn cost_text(cost: &Cost) -> String {
    let parts = [
        (cost.shuffles, "shuffle"),
        (cost.selects, "select"),
        (cost.bytes, "byte"),
        (cost.wavefronts, "wavefront"),
        (cost.conflicts, "bank conflict"),
        (cost.barriers, "barrier"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, name)| count(*n, name)).collect();
    if parts.is_empty() {
        return "nothing".to_owned();
    }
    format!("{}; about {}", parts.join(", "), count(cost.cycles(), "cycle"))
}

fn describe_shared(text: &str, requested: &Requested<'_>) -> Reported<String> {
    let shape = requested.shape()?;
    let elem_bytes = requested.bytes()?.ok_or_else(|| {
        missing("the bytes of an element").help(format!("write `{SHARED_EXAMPLE}`"))
    })?;
    let shared =
        Shared::parse(text, &shape, elem_bytes).map_err(|error| reported(&error, text, &shape))?;
    memory_small_enough(&shared)?;

    let (strides, panel) = shared.strides();
    let mut steps: Vec<String> = (shared.order.iter().zip(&strides))
        .map(|(dim, stride)| format!("{stride} along dim {dim}"))
        .collect();
    if shared.panel.is_some() {
        steps.push(format!("{panel} from panel to panel"));
    }
    let bytes = format!("{}, aligned to {}", count(shared.bytes(), "byte"), shared.align());
    let mut out = format!("{shared}\n\n");
    out += &row("tile", &format!("{} of {}", by(&shape), count(elem_bytes, "byte")));
    out += &row("memory", &bytes);
    out += &row("steps", &format!("{} (elements)", steps.join(", ")));
    if let Some(s) = shared.swizzle {
        let (piece, span) = (1u32 << s.base, 1u32 << (s.base + s.bits));
        let first = s.base + s.shift;
        out += &row(
            "swizzle",
            &format!(
                "pieces of {} change places within {span}, by address bit {first} and up",
                count(piece, "byte")
            ),
        );
    }
    if let Some(text) = requested.text("convert") {
        let layout = read(text, &shape)?;
        let vector = shared.vector(&layout);
        let iterations = count(shared.wavefronts(&layout, vector), "wavefront");
        let extra = match shared.conflicts(&layout, vector) {
            0 => "no bank conflicts".to_owned(),
            extra => format!("up to {} in one access", count(extra, "bank conflict")),
        };
        out += &row("registers", &layout.to_string());
        out += &row(
            "access",
            &format!("{} at a time, {iterations}, {extra}", count(vector, "element")),
        );
    }
    out += &format!("\n<bank>+<which 128 bytes>\n{}", draw_shared(&shared));
    Ok(out)
}

/// Offsets are words of 32 bits: refuses padding and panels that would leave them.
fn memory_small_enough(shared: &Shared) -> Reported<()> {
    let Some((&fast, slower)) = shared.order.split_first() else { return Ok(()) };
    let row = u64::from(shared.panel.unwrap_or(shared.shape[fast]));
    let panels = u64::from(shared.shape[fast]).div_ceil(row);
    let rows = slower.iter().map(|&dim| u64::from(shared.shape[dim])).product::<u64>();
    let bytes = (row + u64::from(shared.pad))
        .saturating_mul(panels * rows)
        .saturating_mul(shared.elem_bytes.into());
    if bytes > MOST_BYTES {
        let expected = format!("shared memory of at most {MOST_BYTES} bytes");
        return Err(argument(&expected, &bytes.to_string()).help("pad and panel count elements"));
    }
    Ok(())
}
