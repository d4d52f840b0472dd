BEGIN TRANSACTION;
CREATE TABLE push_items (
	item_id VARCHAR(64) NOT NULL, 
	cache VARCHAR(255) NOT NULL, 
	as_of_s BIGINT NOT NULL, 
	did TEXT NOT NULL, 
	name TEXT NOT NULL, 
	action VARCHAR(16) NOT NULL, 
	rank BIGINT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	cost_bytes BIGINT NOT NULL, 
	expires_at_s BIGINT NOT NULL, 
	source TEXT, 
	kind VARCHAR(16), 
	basis VARCHAR(16), 
	generation BIGINT, 
	state VARCHAR(16) NOT NULL, 
	attempts BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	error TEXT, 
	fault VARCHAR(16), 
	confirmed_by VARCHAR(32), 
	updated_at_s DOUBLE NOT NULL, 
	renewed_at_s DOUBLE, 
	owner VARCHAR(255), 
	heartbeat_s DOUBLE, 
	PRIMARY KEY (item_id)
);
INSERT INTO "push_items" VALUES('1000-pin-8','xc',1000,'cms:/store/f8','/store/f8','pin',8,10,10,87400,'','plan','known',1,'done',1,0,0.0,NULL,NULL,'cinfo',1001.0,1001.0,'host/boot/1|1|5|x',2001.0);
INSERT INTO "push_items" VALUES('1000-prefetch-1','xc',1000,'cms:/store/f1','/store/f1','prefetch',1,10,10,87400,'','plan','known',1,'done',1,10,1.0,NULL,NULL,'cinfo',1003.0,NULL,NULL,1002.0);
INSERT INTO "push_items" VALUES('1000-prefetch-2','xc',1000,'cms:/store/f2','/store/f2','prefetch',2,10,10,87400,'','plan','known',1,'planned',1,0,0.0,'away','source',NULL,1003.0,NULL,NULL,1002.0);
INSERT INTO "push_items" VALUES('1000-prefetch-3','xc',1000,'cms:/store/f3','/store/f3','prefetch',3,10,10,87400,'','plan','known',1,'cancelling',1,0,0.0,NULL,NULL,NULL,1000.0,NULL,'host/boot/1|1|5|x',1002.0);
INSERT INTO "push_items" VALUES('1000-prefetch-4','xc',1000,'cms:/store/f4','/store/f4','prefetch',4,10,10,87400,'','plan','known',1,'running',1,0,0.0,NULL,NULL,NULL,1000.0,NULL,'host/boot/1|1|5|x',1002.0);
INSERT INTO "push_items" VALUES('1000-prefetch-5','xc',1000,'cms:/store/f5','/store/f5','prefetch',5,10,10,87400,'','plan','known',1,'running',1,0,0.0,NULL,NULL,NULL,1000.0,NULL,'host/boot/1|1|5|x',1002.0);
INSERT INTO "push_items" VALUES('1000-prefetch-6','xc',1000,'cms:/store/f6','/store/f6','prefetch',6,10,10,87400,'','plan','known',1,'planned',0,0,0.0,NULL,NULL,NULL,1000.0,NULL,NULL,NULL);
INSERT INTO "push_items" VALUES('2000-prefetch-3','xc',2000,'cms:/store/f3','/store/f3','prefetch',3,10,10,88400,'','prefill','known',1,'planned',0,0,0.0,NULL,NULL,NULL,2000.0,NULL,NULL,NULL);
CREATE TABLE push_plans (
	cache VARCHAR(255) NOT NULL, 
	as_of_s BIGINT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	generation BIGINT NOT NULL, 
	digest VARCHAR(64), 
	state VARCHAR(16) NOT NULL, 
	replaced_by_s BIGINT, 
	is_settled BOOLEAN NOT NULL, 
	recorded_at_s DOUBLE NOT NULL, 
	PRIMARY KEY (cache, as_of_s)
);
INSERT INTO "push_plans" VALUES('xc',1000,'plan',1,'ebea9c4ef99ebf22a72db65312e0a8919caba842df78289176c93fcef8861e40','standing',NULL,1,1000.0);
INSERT INTO "push_plans" VALUES('xc',2000,'prefill',1,'699a20bd18734ac7f78c9c1184209123263e33ad7de7a78ac0cbcfbaaed858de','standing',NULL,1,2000.0);
CREATE TABLE push_pruned (
	cache VARCHAR(255) NOT NULL, 
	as_of_s BIGINT NOT NULL, 
	n_items BIGINT NOT NULL, 
	pruned_at_s DOUBLE NOT NULL, 
	PRIMARY KEY (cache, as_of_s)
);
CREATE INDEX push_items_waiting ON push_items (cache, state, action, attempts, as_of_s, rank);
CREATE INDEX push_items_of_plan ON push_items (cache, as_of_s);
CREATE INDEX push_items_unproven ON push_items (cache) WHERE basis = 'unproven';
CREATE INDEX push_items_standing ON push_items (cache, action, expires_at_s);
CREATE INDEX push_items_changed ON push_items (cache, updated_at_s);
CREATE INDEX push_items_held ON push_items (owner) WHERE owner IS NOT NULL;
COMMIT;
