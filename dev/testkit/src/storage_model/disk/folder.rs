//! A folder with its current names and its durable names.

use std::collections::{BTreeMap, BTreeSet};

use super::{Node, Survival};

#[derive(Debug, Clone, Default)]
pub(super) struct Folder {
    pub(super) names: BTreeMap<String, Node>,
    pub(super) synced: BTreeMap<String, Node>,
    /// Names whose last change was lost.
    pub(super) lost: BTreeSet<String>,
}

impl Folder {
    pub(super) fn set(&mut self, name: &str, node: Option<Node>) {
        self.lost.remove(name);
        match node {
            Some(node) => self.names.insert(name.to_owned(), node),
            None => self.names.remove(name),
        };
    }

    pub(super) fn changed(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.names.keys().chain(self.synced.keys()).collect();
        let changed = |name: &&&String| self.names.get(**name) != self.synced.get(**name);
        all.iter()
            .filter(changed)
            .map(|&name| name.clone())
            .collect()
    }

    /// Makes the changes durable that are not lost and for which `keeps` returns true.
    pub(super) fn sync(&mut self, mut keeps: impl FnMut() -> bool) {
        for name in self.changed() {
            if self.lost.contains(&name) || !keeps() {
                continue;
            }
            match self.names.get(&name) {
                Some(&node) => self.synced.insert(name, node),
                None => self.synced.remove(&name),
            };
        }
    }

    pub(super) fn crash(&mut self, survival: &mut Survival<'_>) {
        self.sync(|| survival.keeps());
        self.names = self.synced.clone();
        self.lost.clear();
    }
}
