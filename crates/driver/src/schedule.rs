//! The fields of a schedule: tunables that every kernel has, beside those it declares. They are
//! checked when a kernel is declared, are part of the function's `config` when it is compiled, and
//! are read from the text of a plan.

use crate::specialise::Specialised;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_frontend::{Capture, Config};
use tessera_ir::{Attr, Attrs};
use tessera_lower::stage::{Off, Step};

/// A name, and what it may be.
struct Field {
    name: &'static str,
    expected: &'static str,
    allows: fn(&Capture) -> bool,
    /// Whether a compile-time parameter, or field of a record, of the name means the same: 0 leaves the choice to the compiler.
    of_parameters: bool,
}

const FIELDS: [Field; 13] = [
    Field {
        name: "num_warps",
        expected: "a count of warps",
        allows: is_count,
        of_parameters: true,
    },
    Field {
        name: "num_stages",
        expected: "a count of stages",
        allows: is_count,
        of_parameters: true,
    },
    Field {
        name: "raster",
        expected: "a count of rows of groups",
        allows: is_count,
        of_parameters: false,
    },
    Field { name: "cluster", expected: CLUSTER, allows: is_cluster, of_parameters: false },
    Field { name: "cluster_m", expected: CLUSTER, allows: is_cluster, of_parameters: true },
    Field { name: "cluster_n", expected: CLUSTER, allows: is_cluster, of_parameters: true },
    Field {
        name: WARP_SPECIALIZATION,
        expected: "\"cooperative\" or \"pingpong\"",
        allows: is_warp_specialization,
        of_parameters: true,
    },
    Field { name: PERSISTENT, expected: "True or False", allows: is_flag, of_parameters: true },
    Field { name: MULTICAST, expected: "True or False", allows: is_flag, of_parameters: true },
    Field { name: LAZY_RESCALE, expected: "True or False", allows: is_flag, of_parameters: true },
    Field { name: PADDING, expected: "True or False", allows: is_flag, of_parameters: false },
    Field {
        name: "k_splits",
        expected: "a count of parts",
        allows: is_count,
        of_parameters: false,
    },
    Field { name: OFF, expected: "names of passes", allows: is_names, of_parameters: false },
];
const CLUSTER: &str = "1, 2, 4, 8 or 16 blocks";
/// These turn off what is on where it is legal.
const LAZY_RESCALE: &str = "lazy_rescale";
const MULTICAST: &str = "multicast";
const PERSISTENT: &str = "persistent";
const WARP_SPECIALIZATION: &str = "warp_specialization";
const OFF: &str = "off";
/// A cost model decides where neither is said.
const PADDING: &str = "operand_padding";

fn is_count(value: &Capture) -> bool {
    matches!(value, Capture::Int(0..=1024))
}

fn is_cluster(value: &Capture) -> bool {
    matches!(value, Capture::Int(0 | 1 | 2 | 4 | 8 | 16))
}

fn is_warp_specialization(value: &Capture) -> bool {
    matches!(name(value), Some("" | "cooperative" | "pingpong"))
}

fn is_flag(value: &Capture) -> bool {
    matches!(value, Capture::Bool(_) | Capture::Int(0 | 1))
}

fn is_names(value: &Capture) -> bool {
    names(value).is_some_and(|names| Off::named(names, OFF).is_ok())
}

fn names(value: &Capture) -> Option<Vec<&str>> {
    let Capture::Tuple(items) = value else { return None };
    items.iter().map(name).collect()
}

fn name(value: &Capture) -> Option<&str> {
    match value {
        Capture::Str(name) => Some(name),
        _ => None,
    }
}

/// Whether candidates pin what can be.
pub fn check(candidates: &[BTreeMap<String, Capture>], loc: &Loc) -> Result<(), Diagnostics> {
    let mut errors = Diagnostics::new();
    let mut reported: Vec<String> = Vec::new();
    for candidate in candidates {
        for field in &FIELDS {
            let Some(value) = candidate.get(field.name).filter(|v| !(field.allows)(v)) else {
                continue;
            };
            let (name, shown) = (field.name, crate::config::show(value));
            let message = format!("`{name}`: expected {}, got {shown}", field.expected);
            if !reported.contains(&message) {
                reported.push(message.clone());
                let error = Diagnostic::new(Code::E_ARGUMENT, message).at(loc.clone());
                errors.push(error.help("leave it out: the compiler chooses"));
            }
        }
    }
    errors.into_result().map(|_| ())
}

/// The attribute `config` of a function that is compiled so, with these passes left out too.
pub fn attrs(config: &Config, off: Off) -> Attrs {
    let mut said = Attrs::new();
    let mut off = off;
    for field in &FIELDS {
        let param = constant(config, field);
        match config.tunables.get(field.name).or(param) {
            Some(Capture::Bool(yes)) if field.name == PADDING => {
                said.set(PADDING, Attr::Bool(*yes));
            }
            Some(Capture::Bool(false) | Capture::Int(0)) if can_be_off(field) => {
                said.set(field.name, Attr::Bool(false));
            }
            Some(Capture::Str(word)) if !word.is_empty() && field.name == WARP_SPECIALIZATION => {
                said.set(WARP_SPECIALIZATION, Attr::word(word));
            }
            Some(Capture::Int(n @ 1..=1024)) if !can_be_off(field) => {
                said.set(field.name, Attr::Int(*n as i64));
            }
            Some(value) if field.name == OFF => {
                let named = names(value).and_then(|names| Off::named(names, OFF).ok());
                off = off.and(named.unwrap_or_default());
            }
            _ => {}
        }
    }
    if let Some(off) = off.attr() {
        said.set(OFF, off);
    }
    said
}

/// The compile-time parameter that means the same as a field, or the first field of a record that does.
fn constant<'a>(config: &'a Config, field: &Field) -> Option<&'a Capture> {
    if !field.of_parameters {
        return None;
    }
    let is_named = |(path, _): &(&String, _)| {
        path.rsplit_once('.').is_some_and(|(_, last)| last == field.name)
    };
    let found = config.consts.get(field.name);
    found.or_else(|| config.consts.iter().find(is_named).map(|(_, value)| value))
}

fn can_be_off(field: &Field) -> bool {
    matches!(field.name, LAZY_RESCALE | MULTICAST | PADDING | PERSISTENT)
}

/// What was found for what a configuration leaves open, and the passes that were left out.
pub fn chosen(spec: &Specialised) -> Attrs {
    let mut out = spec.artifact.chosen();
    for field in &FIELDS {
        let in_config =
            spec.config.tunables.contains_key(field.name) || pins(constant(&spec.config, field));
        if in_config {
            out.remove(field.name);
        }
    }
    if let (Some(off), false) = (spec.mode.off.attr(), spec.config.tunables.contains_key(OFF)) {
        out.set(OFF, off);
    }
    out
}

fn pins(value: Option<&Capture>) -> bool {
    !matches!(value, None | Some(Capture::Int(0)))
}

/// The passes that can be left out.
pub fn pass_names() -> Vec<&'static str> {
    Step::ALL.iter().map(|s| s.name()).collect()
}

/// The kernel of a plan's text, and all that the text pins; functions are the call's own.
pub fn fields(text: &str) -> Result<(String, Vec<(String, Capture)>), Diagnostics> {
    let help = "`k.inspect_ir(\"schedule\")` prints text of the right form";
    let (kernel, attrs) =
        tessera_schedule::pinned(text, "<schedule>").map_err(|found| found.or_help(help))?;
    let rows = attrs.iter().filter_map(|(name, value)| Some((name.to_string(), capture(value)?)));
    Ok((kernel, rows.collect()))
}

fn capture(value: &Attr) -> Option<Capture> {
    match value {
        Attr::Bool(v) => Some(Capture::Bool(*v)),
        Attr::Int(v) => Some(Capture::Int((*v).into())),
        Attr::Float(v) => Some(Capture::Float(*v)),
        Attr::Str(v) | Attr::Word(v) => Some(Capture::Str(v.clone())),
        Attr::List(items) => {
            items.iter().map(capture).collect::<Option<Vec<_>>>().map(Capture::Tuple)
        }
        Attr::Ref(_) | Attr::Expr(_) | Attr::Type(_) | Attr::Dict(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(rows: &[(&str, Capture)]) -> BTreeMap<String, Capture> {
        rows.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    #[test]
    fn what_cannot_be_is_reported_once_for_each_value() {
        let passes = |name: &str| Capture::Tuple(vec![Capture::Str(name.into())]);
        let good = candidate(&[
            ("num_warps", Capture::Int(8)),
            ("cluster", Capture::Int(4)),
            ("lazy_rescale", Capture::Bool(false)),
            ("off", passes("mma_in_flight")),
            ("BM", Capture::Int(-3)),
        ]);
        assert!(check(&[good.clone(), good], &Loc::unknown()).is_ok());
        for (name, value) in [
            ("num_warps", Capture::Int(-1)),
            ("num_stages", Capture::Str("two".into())),
            ("raster", Capture::Float(2.0)),
            ("cluster", Capture::Int(3)),
            ("lazy_rescale", Capture::Int(2)),
            ("off", passes("in_flight")),
            ("off", Capture::Str("mma_in_flight".into())),
        ] {
            let wrong = candidate(&[(name, value)]);
            let errors = check(&[wrong.clone(), wrong], &Loc::unknown()).unwrap_err();
            let reported: Vec<_> = errors.errors().collect();
            assert_eq!((reported.len(), reported[0].code), (1, Code::E_ARGUMENT), "{name}");
            assert!(reported[0].message.starts_with(&format!("`{name}`: expected ")));
        }
    }

    #[test]
    fn pins_stand_in_the_config_and_nothing_else_does() {
        let tunables = candidate(&[
            ("BM", Capture::Int(64)),
            ("num_warps", Capture::Int(8)),
            ("raster", Capture::Int(0)),
            ("off", Capture::Tuple(vec![Capture::Str("mma_in_flight".into())])),
        ]);
        // A parameter called so means what its kernel says, unless it is one of the old names.
        let consts = candidate(&[("cluster", Capture::Int(4)), ("num_stages", Capture::Int(3))]);
        let config = Config { tunables, consts, ..Config::default() };
        let said = attrs(&config, Off::default().with(Step::InterleavedMmas));
        let text = Attr::Dict(said).to_string();
        assert_eq!(
            text,
            "{num_warps = 8, num_stages = 3, off = [mma_in_flight, interleaved_mmas]}"
        );
        assert!(attrs(&Config::default(), Off::default()).is_empty());
    }

    #[test]
    fn fields_of_records_pin_as_parameters_do() {
        let pinned = |rows: &[(&str, Capture)]| {
            let config = Config { consts: candidate(rows), ..Config::default() };
            Attr::Dict(attrs(&config, Off::default())).to_string()
        };
        let rows =
            [("how.lazy_rescale", Capture::Bool(false)), ("tile.num_warps", Capture::Int(8))];
        assert_eq!(pinned(&rows), "{num_warps = 8, lazy_rescale = false}");
        // Neither a part of a name nor a field of a list's item pins anything.
        assert_eq!(pinned(&[("how.my_num_warps", Capture::Int(8))]), "{}");
        assert_eq!(pinned(&[("how.num_warps", Capture::Int(0))]), "{}");
        assert_eq!(
            pinned(&[("a.num_warps", Capture::Int(8)), ("num_warps", Capture::Int(4))]),
            "{num_warps = 4}"
        );
    }
}
