//! The functions that planning puts in place of composites.

use tessera_diag::Code;
use tessera_graph::{Graph, GraphModule};
use tessera_ir::{Type, parse_module};
use tessera_plan::{Chosen, Machine, Site, argument_type, flatten, undecided};

const MODULE: &str = "module @m : graph {version = 1}

func @double(%x: tensor<[n], f32>) {
  %y = graph.add %x, %x : tensor<[n], f32>
  graph.return %y
}

func @quarter(%x: tensor<[n], f32>) {
  %h = graph.const {value = 0.25} : tensor<[n], f32>
  %y = graph.mul %x, %h : tensor<[n], f32>
  graph.return %y
}

func @fast(%x: tensor<[4], f32>) {
  %t = graph.const {value = 8.0} : tensor<[4], f32>
  %z = graph.mul %x, %t : tensor<[4], f32>
  %y = graph.composite %z {name = quarter, decomposition = @quarter} : tensor<[4], f32>
  graph.return %y
}

func @wrong(%x: tensor<[4], f32>) {
  %y = graph.cast %x : tensor<[4], f16>
  graph.return %y
}

func @inner(%x: tensor<[n], f32>) {
  %y = graph.composite %x {name = double, decomposition = @double} : tensor<[n], f32>
  graph.return %y
}

func @f(%x: tensor<[n], f32>, %k: tensor<[], i64>) {
  %a = graph.call %x {callee = @inner} : tensor<[n], f32>
  %b = graph.loop init(%a) {trip = 3} : tensor<[n], f32> do (%i: tensor<[], i64>, %c: tensor<[n], f32>) {
    %d = graph.call %c {callee = @inner} : tensor<[n], f32>
    graph.yield %d
  }
  graph.return %b
}
";

fn module() -> GraphModule {
    let module = parse_module::<Graph>(MODULE, "m").unwrap_or_else(|e| panic!("{e}"));
    tessera_graph::verify_module(&module).unwrap_or_else(|e| panic!("{e}"));
    module
}

fn args(n: i64) -> Vec<Type> {
    vec![
        argument_type(&[n], tessera_numerics::DType::F32),
        argument_type(&[], tessera_numerics::DType::I64),
    ]
}

fn sites(module: &GraphModule, n: i64, chosen: &Chosen) -> Vec<Site> {
    undecided(module, "f", &args(n), chosen, &|_, _| false).unwrap_or_else(|e| panic!("{e}"))
}

fn flat(module: &GraphModule, n: i64, chosen: &Chosen) -> String {
    flatten(module, "f", &args(n), Machine::Cpu, false, chosen)
        .unwrap_or_else(|e| panic!("{e}"))
        .to_string()
}

#[test]
fn each_composite_is_listed_once_and_what_kernels_hold_after_them() {
    let module = module();
    let mut chosen = Chosen::default();
    let first = sites(&module, 4, &chosen);
    let [site] = &first[..] else { panic!("{first:?}") };
    assert_eq!((site.name.as_str(), site.decomposition.as_str()), ("double", "double"));
    assert_eq!(site.args[0].to_string(), "tensor<[4], f32>");
    let plain = flat(&module, 4, &chosen);
    assert!(plain.contains("graph.add") && !plain.contains("composite"), "{plain}");
    chosen.decide(&module, site, Some("fast".into())).unwrap();
    let second = sites(&module, 4, &chosen);
    let [site] = &second[..] else { panic!("{second:?}") };
    assert_eq!(site.name, "quarter");
    chosen.decide(&module, site, None).unwrap();
    assert!(sites(&module, 4, &chosen).is_empty());
    let fast = flat(&module, 4, &chosen);
    assert!(fast.contains("value = 8.0") && fast.contains("value = 0.25"), "{fast}");
    assert!(!fast.contains("graph.add"), "{fast}");
    // What is decided holds for these extents alone.
    assert_eq!(sites(&module, 5, &chosen).len(), 1);
    assert!(flat(&module, 5, &chosen).contains("graph.add"));
}

#[test]
fn a_kernel_has_the_signature_of_the_composite() {
    let module = module();
    let mut chosen = Chosen::default();
    let site = &sites(&module, 4, &chosen)[0];
    let error = chosen.decide(&module, site, Some("wrong".into())).unwrap_err();
    assert_eq!(error.code, Code::E_TYPE);
    let wanted = "expected the kernel of `double` to give (tensor<[4], f32>), as its decomposition does, got (tensor<[4], f16>)";
    assert_eq!(error.message, wanted);
    let error = chosen.decide(&module, site, Some("nobody".into())).unwrap_err();
    assert_eq!(error.code, Code::E_NAME);
    // One for other extents does not fit either.
    let site = &sites(&module, 5, &chosen)[0];
    assert!(chosen.decide(&module, site, Some("fast".into())).is_err());
    assert_eq!(chosen, Chosen::default());
}
