@targetLabel true
@data
1,2:3,4:0.5
1e-60,?:nan,inf:1
