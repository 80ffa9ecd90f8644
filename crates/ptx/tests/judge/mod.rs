//! NVIDIA's assembler checks what this crate claims about every form of every instruction: on which
//! targets it exists and from which version of PTX on. Nothing here needs a GPU.

mod forms;

use crate::assembler::tools;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{iter, thread};
use tessera_ptx::caps::first_version;
use tessera_ptx::legal::{kernel_requires, requires, version_of};
use tessera_ptx::tools::Tools;
use tessera_ptx::verify::constant_fits;
use tessera_ptx::*;

/// A form, with what is claimed about it.
struct Form {
    text: String,
    needs: Result<Vec<Feature>, String>,
    inst: Inst,
}

impl Form {
    fn all() -> Vec<Form> {
        let all = forms::all().into_iter();
        all.map(|i| Form { text: i.to_string(), needs: requires(&i), inst: i }).collect()
    }

    fn claimed(&self, target: Target) -> bool {
        self.needs.as_ref().is_ok_and(|needs| needs.iter().all(|f| f.on().has(target)))
    }
}

/// The forms that are claimed for a target, each text once.
fn claimed(all: &[Form], target: Target) -> BTreeMap<&str, &Form> {
    all.iter().filter(|f| f.claimed(target)).map(|f| (f.text.as_str(), f)).collect()
}

/// A kernel with room for the forms, without any.
fn empty_kernel(name: &str) -> Kernel {
    let mut kernel = Kernel::new(name, 128);
    kernel.params.push(Param { name: forms::PARAM.to_string(), bytes: 128, align: 64 });
    kernel.shared.push(SharedVar { name: forms::SHARED.to_string(), bytes: 1024, align: 128 });
    kernel.regs = [forms::REGISTERS; 4];
    // The registers that `setmaxnreg` redistributes must be known.
    kernel.min_blocks = Some(1);
    kernel.labels = 1;
    kernel.body.push(Stmt::Label(forms::LABEL));
    kernel
}

/// With values that are opaque to the assembler.
fn every_register_written(kernel: &Kernel) -> Vec<Stmt> {
    let reg = |class, id| Reg { class, id };
    let mut code = Vec::new();
    for ty in [Ty::B16, Ty::B32, Ty::B64] {
        code.extend((0..kernel.regs[ty.class().place()]).map(|id| Inst::Ld {
            space: Space::Param,
            ty,
            d: vec![reg(ty.class(), id)],
            addr: Addr::name(forms::PARAM, i64::from(id % 16 * 8)),
            cache: Cache::Usual,
            sem: Sem::Weak,
            scope: Scope::Gpu,
        }));
    }
    code.extend((0..kernel.regs[0]).map(|id| {
        let (d, a) = (reg(Class::Pred, id), Opnd::Reg(reg(Class::B32, id)));
        Inst::Setp { cmp: Cmp::Ne, ty: Ty::B32, ftz: false, d, a, b: Opnd::Int(0) }
    }));
    code.into_iter().map(|inst| Stmt::Inst { guard: None, inst }).collect()
}

/// Which of the forms are refused.
fn refused(tools: &Tools, target: Target, version: Version, forms: &[&Form]) -> BTreeSet<usize> {
    let kernels = vec![empty_kernel("forms")];
    let text = Module { version, target, files: Vec::new(), kernels }.text();
    let (head, tail) = text.split_at(text.find(&forms::LABEL.to_string()).unwrap());
    let before = head.lines().count();
    let mut out = BTreeSet::new();
    loop {
        let places: Vec<usize> = (0..forms.len()).filter(|i| !out.contains(i)).collect();
        let lines: String = places.iter().map(|i| format!("{}\n", forms[*i].text)).collect();
        // The line that is never valid prevents translation, which takes longer.
        let text = format!("{head}{lines}nothing;\n{tail}");
        let said = tools.assemble_text(&text, target, &[]).unwrap();
        let refused = said.refused.iter().map(|(line, _)| line - before - 1);
        out.extend(refused.filter_map(|i| places.get(i)));
        // What ends it is left out in the next run.
        if said.ended_at.is_none_or(|line| line > before + places.len()) {
            assert!(!said.refused.is_empty(), "{}", said.words);
            return out;
        }
    }
}

/// Checks two targets at a time: CI machines have two processors.
fn for_each_target(judge: impl Fn(Target) -> Vec<String> + Sync) {
    let targets = Tools::targets();
    let next = AtomicUsize::new(0);
    let mut faults = BTreeMap::<String, Vec<String>>::new();
    thread::scope(|scope| {
        let workers = [0; 2].map(|_| {
            scope.spawn(|| {
                let mine = iter::from_fn(|| targets.get(next.fetch_add(1, Ordering::Relaxed)));
                mine.map(|t| (*t, judge(*t))).collect::<Vec<_>>()
            })
        });
        for (target, found) in workers.into_iter().flat_map(|w| w.join().unwrap()) {
            found.into_iter().for_each(|f| faults.entry(f).or_default().push(target.to_string()));
        }
    });
    let lines = faults.iter().map(|(fault, on)| format!("\n{fault} ({})", on.join(" ")));
    assert!(faults.is_empty(), "{} faults:{}", faults.len(), lines.collect::<String>());
}

#[test]
fn every_form_exists_where_it_is_claimed_and_nowhere_else() {
    let Some(tools) = tools() else { return };
    let all = Form::all();
    for_each_target(|target| {
        let good = claimed(&all, target);
        // Several of our forms may have one text; it exists if one of them does.
        let others = all.iter().filter(|f| !good.contains_key(f.text.as_str()));
        let others: BTreeMap<&str, &Form> = others.map(|f| (f.text.as_str(), f)).collect();
        let judged: Vec<&Form> = good.values().chain(others.values()).copied().collect();
        let refused = refused(&tools, target, Tools::newest_version(target), &judged);
        let mut faults = Vec::new();
        for (place, form) in judged.iter().enumerate() {
            match (place < good.len(), refused.contains(&place)) {
                (true, true) => faults.push(format!("claimed and refused: {}", form.text)),
                (false, false) if !is_left_out(&form.inst, target) => {
                    faults.push(format!("exists and is not claimed: {}", form.text));
                }
                _ => {}
            }
        }
        faults
    });
}

/// Forms that the assembler accepts and that are not used, each with the reason.
fn is_left_out(inst: &Inst, target: Target) -> bool {
    let bf16 = |ty: &Ty| matches!(ty, Ty::BF16 | Ty::BF16x2);
    match inst {
        // Without a rounding mode the assembler may fuse a sum and a product.
        Inst::Alu { op: Alu::Add | Alu::Sub | Alu::Mul, ty, round: None, .. } => ty.is_float(),
        // Undocumented: other roundings of bf16, carries of 16 bits or clamped, flushed f64, deeper
        // MMAs of tf32, one-way fences of sm_70, vectors of eight bytes or halves.
        Inst::Alu { op: Alu::Fma, ty, .. } => bf16(ty),
        Inst::Alu { op: Alu::Addc, .. } => true,
        Inst::Alu { op: Alu::Rcp, ty: Ty::F64, ftz, .. } => *ftz,
        Inst::Cvt { to, from, .. } => bf16(to) || bf16(from),
        Inst::Mma { row, .. } => row.a == Ty::Tf32,
        Inst::Fence { .. } => target.sm == 70,
        // Wide or streaming accesses that are ordered too.
        Inst::Ld { ty, d: items, cache, sem, .. } => wide(*ty, items.len(), *cache, *sem),
        Inst::St { ty, a: items, cache, sem, .. } => wide(*ty, items.len(), *cache, *sem),
        // A packed comparison gives two results.
        Inst::Setp { ty, .. } => matches!(ty, Ty::F16x2 | Ty::BF16x2),
        _ => false,
    }
}

fn wide(ty: Ty, n: usize, cache: Cache, sem: Sem) -> bool {
    n == 8 && ty.bits() < 32 || sem != Sem::Weak && (cache != Cache::Usual || n >= 4)
}

/// Versions of PTX, in order.
const VERSIONS: &[(u32, u32)] = &[
    (6, 0),
    (6, 1),
    (6, 2),
    (6, 3),
    (6, 4),
    (6, 5),
    (7, 0),
    (7, 1),
    (7, 2),
    (7, 3),
    (7, 4),
    (7, 5),
    (7, 6),
    (7, 7),
    (7, 8),
    (8, 0),
    (8, 1),
    (8, 2),
    (8, 3),
    (8, 4),
    (8, 5),
    (8, 6),
    (8, 7),
    (8, 8),
    (9, 0),
];

fn version((major, minor): (u32, u32)) -> Version {
    Version { major, minor }
}

#[test]
fn every_form_is_read_from_its_version_on_and_not_before() {
    let Some(tools) = tools() else { return };
    let all = Form::all();
    for_each_target(|target| {
        let first = first_version(target).unwrap();
        let mut groups = BTreeMap::<Version, Vec<&Form>>::new();
        for form in claimed(&all, target).into_values() {
            let needs = form.needs.as_ref().unwrap();
            groups.entry(version_of(needs, target).unwrap()).or_default().push(form);
        }
        let mut faults = Vec::new();
        for (needed, forms) in groups {
            for i in refused(&tools, target, needed, &forms) {
                faults.push(format!("not yet in {needed}: {}", forms[i].text));
            }
            let before = VERSIONS.iter().map(|v| version(*v)).rfind(|v| *v < needed);
            if let Some(before) = before.filter(|v| *v >= first) {
                let refused = refused(&tools, target, before, &forms);
                let good = (0..forms.len()).filter(|i| !refused.contains(i));
                faults.extend(good.map(|i| format!("already in {before}: {}", forms[i].text)));
            }
        }
        faults
    });
}

#[test]
fn what_is_claimed_is_also_translated() {
    let Some(tools) = tools() else { return };
    let all = Form::all();
    for_each_target(|target| {
        let forms: Vec<&Form> = claimed(&all, target).into_values().collect();
        // What ends the code comes last, so that all before is reached.
        let ends = |f: &&&Form| matches!(f.inst, Inst::Bra { .. } | Inst::Trap | Inst::Ret);
        let code = forms.iter().filter(|f| !ends(f)).chain(forms.iter().filter(ends));
        let code: Vec<&Inst> = code.map(|f| &f.inst).collect();
        let mut module =
            Module { version: version((0, 0)), target, files: Vec::new(), kernels: Vec::new() };
        for (number, part) in code.chunks(400).enumerate() {
            let mut kernel = empty_kernel(&format!("forms_{number}"));
            let insts = part.iter().map(|i| Stmt::Inst { guard: None, inst: (*i).clone() });
            let label = kernel.body.pop();
            kernel.body = every_register_written(&kernel);
            kernel.body.extend(insts.chain(label));
            kernel.body.push(Stmt::Inst { guard: None, inst: Inst::Ret });
            module.kernels.push(kernel);
        }
        module.version = module.minimum_version();
        if let Err(errors) = verify(&module) {
            return errors.iter().map(|e| e.message.clone()).collect();
        }
        let said = tools.assemble(&module).unwrap();
        let faults = said.words.lines().filter(|l| !l.contains("warning") && !l.contains("info"));
        if said.cubin.is_some() { Vec::new() } else { faults.map(str::to_string).collect() }
    });
}

/// What a kernel says about itself, before its code.
fn headers() -> Vec<Kernel> {
    type Change = fn(&mut Kernel);
    let changes: [Change; 8] = [
        |_| {},
        |k| k.cluster = 2,
        |k| k.cluster = 8,
        |k| k.explicit_cluster = true,
        |k| k.params[0].bytes = 4352,
        |k| k.params[0].bytes = 4356,
        |k| k.params[0].bytes = 32764,
        |k| (k.max_registers, k.dynamic_shared) = (Some(64), 1024),
    ];
    let kernels = changes.iter().map(|change| {
        let mut kernel = empty_kernel("header");
        change(&mut kernel);
        kernel.body.push(Stmt::Inst { guard: None, inst: Inst::Ret });
        kernel
    });
    kernels.collect()
}

#[test]
fn headers_of_kernels_are_judged_too() {
    let Some(tools) = tools() else { return };
    for_each_target(|target| {
        let mut faults = Vec::new();
        for kernel in headers() {
            let needs = kernel_requires(&kernel);
            let has = needs.iter().all(|f| f.on().has(target));
            let needed = version_of(&needs, target).unwrap();
            let before = VERSIONS.iter().map(|v| version(*v)).rfind(|v| *v < needed);
            let before = before.filter(|v| has && *v >= first_version(target).unwrap());
            let newest = Tools::newest_version(target);
            let at = if has { needed } else { newest };
            for (version, good) in iter::once((at, has)).chain(before.map(|v| (v, false))) {
                let kernels = vec![kernel.clone()];
                let module = Module { version, target, files: Vec::new(), kernels };
                let taken = tools.assemble(&module).unwrap().cubin.is_some();
                if taken != good {
                    let (given, needs) = (if taken { "taken" } else { "refused" }, &needs);
                    faults
                        .push(format!("{given} in {version}, needs {needs:?}: {}", module.text()));
                }
            }
        }
        faults
    });
}

#[test]
fn constants_stand_where_they_are_said_to() {
    let Some(tools) = tools() else { return };
    let target = Target { sm: 100, exact: true };
    let all = Form::all();
    let mut fits = BTreeMap::<String, bool>::new();
    for form in claimed(&all, target).values() {
        for (inst, class) in forms::with_constants(&form.inst) {
            // A float constant has the type of its operand; the assembler would round it to
            // another.
            let Some(constant) = inst.operands().into_iter().find(|o| is_float(o.what)) else {
                // Undocumented for several halves; and a byte is no constant.
                let lenient = matches!(&inst, Inst::Red { a, .. } if a.len() > 1);
                let stricter = matches!(&inst, Inst::Cvt { from: Ty::E2M1x2, .. });
                let good = constant_fits(&inst, Opnd::Int(1), class);
                if good || !lenient && !stricter {
                    fits.insert(inst.to_string(), good);
                }
                continue;
            };
            // Bit positions have a range of their own.
            let position = matches!(inst, Inst::Alu { op: Alu::Bfi, .. });
            if constant_fits(&inst, constant.what, class) && !position {
                fits.insert(inst.to_string(), true);
            }
        }
    }
    let forms: Vec<Form> = fits
        .keys()
        .map(|text| Form { text: text.clone(), needs: Ok(Vec::new()), inst: Inst::Ret })
        .collect();
    let refused =
        refused(&tools, target, Tools::newest_version(target), &forms.iter().collect::<Vec<_>>());
    let wrong = fits.iter().enumerate().filter(|(n, (_, fits))| refused.contains(n) == **fits);
    let wrong: Vec<&String> = wrong.map(|(_, (text, _))| text).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn is_float(what: Opnd) -> bool {
    matches!(what, Opnd::F32(_) | Opnd::F64(_))
}

#[test]
fn every_instruction_has_a_form() {
    let source = include_str!("../../src/inst.rs");
    let table = source.split("pub enum Inst {").nth(1).unwrap().split("\n}\n").next().unwrap();
    let named =
        |line: &str| -> String { line.chars().take_while(|c| c.is_alphanumeric()).collect() };
    let variants = table.lines().map(|l| named(l.trim())).filter(|name| !name.is_empty());
    let formed: BTreeSet<String> = forms::all().iter().map(|i| named(&format!("{i:?}"))).collect();
    assert_eq!(variants.collect::<BTreeSet<_>>(), formed);
}
